#!/usr/bin/env python3
"""Holds the architecture: which folder may include and name what, how long files and folders get, what the READMEs list
and where the links of pages lead.

Each rule is a function from the project's root to the list of its violations. The class Rules applies them to this
project, the class PlantedFaults to a small tree with one fault each, so that every rule is known to be able to fail.

  python3 tests/structure_test.py
"""

import collections
import fnmatch
import graphlib
import pathlib
import re
import tempfile
import unittest

# The folders of harness/, lowest first; "" holds the files directly in harness/, which stand on one level with support/ and
# components/. Includes point to the left.
LAYERS = ["", "support", "components", "communicator", "models", "tasks", "experiment", "numerics", "store", "layer", "embed",
          "verify", "training", "vectors", "inference", "counting", "probe", "panel", "queue", "launch", "report", "transfer", "prediction", "cli"]
LEVEL = {name: max(position, 2) for position, name in enumerate(LAYERS)}
# What strategies/ may include of harness/: the interface headers.
SEEN_BY_STRATEGIES = ["", "support", "components", "communicator", "layer", "verify"]
# Built without LibTorch, so that they compile in seconds and run under the thread sanitiser.
PLAIN_FILES = ["towers", "population", "labelled", "strategy_facts"]
PLAIN_FOLDERS = ["components", "communicator/host", "experiment", "numerics", "store", "queue", "launch", "report",
                 "transfer", "prediction", "cli"]
# Declarations of a library that LibTorch's wheel uses without shipping its headers; they may include each other.
FOREIGN_HEADERS = "harness/communicator/gloo_headers/"

# The library's ranks, which may be those of a process group that the program hands in; the strategy of a layer that is
# said to have none, the one whose arithmetic other frameworks are judged by, and those that a new network is to try first.
TAKES_A_PROCESS_GROUP = ["harness/embed/bnlab/ranks.hpp", "harness/embed/ranks.cpp"]
NAMES_A_STRATEGY = ["harness/embed/bnlab/batch_norm.hpp", "harness/vectors/cases.cpp", "harness/cli/network_screen.cpp"]

LONGEST_STRATEGY = 150
LONGEST_SOURCE = 500
LONGEST_FILE = 500  # of tests and scripts
MOST_SOURCES = 45  # in a folder of harness/ or strategies/

FOLDERS_WITH_README = ["harness", "strategies", "scripts", "tests", "experiments", "results"]
CPP = {".cpp", ".hpp", ".h", ".cu", ".cuh"}
SOURCES = CPP | {".py", ".sh"}


def files(root, *folders, suffixes=CPP):
    """The sources below the folders as paths relative to the root, in a fixed order."""
    found = (path for folder in folders for path in (root / folder).rglob("*") if path.suffix in suffixes)
    return sorted(path.relative_to(root) for path in found if "__pycache__" not in path.parts)


def code(path):
    """The text of a C++ file without its comments; strings stay."""
    kept = r'R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\[^\n]|[^\'\\\n])\''
    comment = r"//[^\n]*|/\*.*?\*/"
    text = path.read_text(encoding="utf-8")
    return re.sub(f"(?P<kept>{kept})|{comment}", lambda match: match.group("kept") or " ", text, flags=re.DOTALL)


def includes(path):
    """[(quoted, name)] of a file's include lines."""
    lines = re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', code(path), re.MULTILINE)
    return [(mark == '"', name) for mark, name in lines]


def layer(path):
    """The folder of harness/ that a path such as harness/experiment/spec.hpp belongs to."""
    parts = pathlib.PurePath(path).parts
    return parts[1] if len(parts) > 2 else ""


def upward_includes(root):
    wrong = []
    for path in files(root, "harness", "strategies"):
        if path.as_posix().startswith(FOREIGN_HEADERS):
            continue
        if path.parts[0] == "harness" and layer(path) not in LAYERS:
            wrong.append(f"{path}: the folder is not one of LAYERS in tests/structure_test.py")
            continue
        for quoted, name in includes(root / path):
            target = pathlib.PurePosixPath(name).parts[0]
            if target not in ("harness", "strategies"):
                if quoted:
                    wrong.append(f'{path}: write "{name}" from the root of the project, or in <> for a library')
            elif path.parts[0] == "harness":
                if target == "strategies":
                    wrong.append(f"{path} includes {name}: harness never includes strategies")
                elif LEVEL[layer(name)] > LEVEL[layer(path)]:
                    wrong.append(f"{path} includes {name}, which lies above it")
            elif target == "harness" and layer(name) not in SEEN_BY_STRATEGIES:
                wrong.append(f"{path} includes {name}, which is none of harness's interface headers")
    return wrong


def circular_includes(root):
    """Between rooms: a header and the sources of its name. The first circle that is found."""
    rooms = collections.defaultdict(set)
    for path in files(root, "harness", "strategies"):
        if not path.as_posix().startswith(FOREIGN_HEADERS):
            room = path.with_suffix("")
            rooms[room] |= {pathlib.PurePath(name).with_suffix("") for quoted, name in includes(root / path) if quoted} - {room}
    try:
        graphlib.TopologicalSorter(rooms).prepare()
    except graphlib.CycleError as error:
        return ["a circle of includes: " + " <- ".join(room.as_posix() for room in error.args[1])]
    return []


def c10d_outside_communicator(root):
    return [
        f"{path} names c10d: only harness/communicator does"
        for path in files(root, "harness", "strategies")
        if path.parts[:2] != ("harness", "communicator")
        and path.as_posix() not in TAKES_A_PROCESS_GROUP
        and re.search(r"\bc10d\b|torch/csrc/distributed", code(root / path))
    ]


def registered_strategies(root):
    pattern = r'\bRegistered<\w+>\s+\w+\s*\{\s*\{\s*(?:\.name\s*=\s*)?"(\w+)"'
    return [name for path in files(root, "strategies") for name in re.findall(pattern, code(root / path))]


def strategies_named_by_harness(root):
    names = set(registered_strategies(root)) - {"none", "precise", "shuffle"}  # also an activation; a population; a purpose of traffic
    return [
        f'{path} names the strategy "{name}": harness knows strategies through the registry only'
        for path in files(root, "harness")
        if path.as_posix() not in NAMES_A_STRATEGY
        for name in re.findall(r'"(\w+)"', code(root / path))
        if name in names
    ]


def torch_in_plain_files(root):
    """Follows the project's own includes, so that a torch header behind another header is found too."""
    wrong = []

    def search(path, chain):
        for _, name in includes(root / path):
            if re.match(r"(torch|ATen|c10|caffe2)/", name):
                wrong.append(" includes ".join([*chain, name]) + ": this part is built without LibTorch")
            elif name.startswith(("harness/", "strategies/")) and name not in chain and (root / name).exists():
                search(pathlib.Path(name), [*chain, name])

    for path in files(root, "harness"):
        in_folder = any(path.is_relative_to(pathlib.PurePath("harness", folder)) for folder in PLAIN_FOLDERS)
        if in_folder or (layer(path) == "" and path.stem in PLAIN_FILES):
            search(path, [path.as_posix()])
    return wrong


def program_in_library(root):
    """What bnlab::strategies is built from without the program reaches no source that only the program is built from."""
    built = re.findall(r"harness/[\w/*]+\.cpp", (root / "cmake/library.cmake").read_text(encoding="utf-8"))
    wrong, seen = [], set()

    def search(path):
        for _, name in includes(root / path):
            header = pathlib.Path(name)
            for reached in (header, header.with_suffix(".cpp")):
                if reached in seen or reached.parts[0] != "harness" or not (root / reached).exists():
                    continue
                seen.add(reached)
                if reached.suffix == ".cpp" and not any(fnmatch.fnmatch(reached.as_posix(), glob) for glob in built):
                    wrong.append(f"{path} needs {reached}, which cmake/library.cmake leaves out of bnlab::strategies")
                search(reached)

    for path in files(root, "harness/embed", "strategies", suffixes={".cpp"}):
        if path.parts[1] != "reference":
            search(path)
    return wrong


def waits_for_a_device(root):
    """Numbers of the host that a step needs on its device go there without a wait: through harness/support/upload.hpp."""
    return [
        f"{path}: {call.group(0)} copies from ordinary memory, for which a GPU's host waits: use uploaded()"
        for path in files(root, "harness/training", "strategies")
        if path.parts[1] != "reference"
        for call in re.finditer(r"\bat::tensor\(", code(root / path))
    ]


def streams_restored_too_late(root):
    """A thread_local that gives a stream or a device back when it is destroyed may do so after LibTorch's own
    thread_local arrays are gone: into freed memory."""
    return [
        f"{path}: {found.group(0)}: make it a local of the thread's function"
        for path in files(root, "harness", "strategies")
        for found in re.finditer(r"\bthread_local\b[^;={]*(?:Stream|Guard)\b[^;={]*", code(root / path))
    ]


def what_wrappers_forget(root):
    """A wrapper hands on to its base whatever a strategy can be asked."""
    strategy, wrapper = (root / "harness/strategy.hpp", root / "strategies/engine/wrapper.hpp")
    asked = re.findall(r"\bvirtual\s[^;{]*?\b(\w+)\(|(\w+)\([^;{]*\)\s*(?:const\s*)?override\b", code(strategy))
    asked = {virtual or overridden for virtual, overridden in asked} | {"norm"}  # a layer maker's, left to the strategies
    handed_on = set(re.findall(r"base_->(\w+)\(", code(wrapper)))
    return [f"strategies/engine/wrapper.hpp does not hand on {name}()" for name in sorted(asked - handed_on)]


def says_what_it_tests(root, path):
    """By the name of its source, as queue/claims_test.cpp, strategies/sync_test.cpp and figures/test_matrix.py do, or at its head."""
    name = path.stem.removeprefix("test_").removesuffix("_test")
    if path.parts[0] != "tests" or name == path.stem:
        return False
    source = path.relative_to("tests").with_name(name)
    return re.match(r'//|(#!.*\n)?"""', (root / path).read_text(encoding="utf-8")) or any(
        (root / top / source).with_suffix(suffix).exists() for top in ("harness", "scripts", "") for suffix in SOURCES)


def gaps_in_readmes(root):
    """A README lists the files of its folder, and those of folders below that have no README; of tests only those
    that do not say it themselves."""
    wrong = []
    folders = [root / name for name in FOLDERS_WITH_README]
    folders += [folder for top in ("harness", "strategies") for folder in sorted((root / top).glob("*")) if folder.is_dir()]
    for folder in folders:
        if not (folder / "README.md").exists():
            wrong.append(f"{folder.relative_to(root)}: no README.md")
    sources = files(root, "harness", "strategies", "scripts", "tests", suffixes=SOURCES)
    for path in sources + files(root, "experiments", suffixes={".json"}):
        readme = next((root / up / "README.md" for up in path.parents if (root / up / "README.md").exists()), None)
        if says_what_it_tests(root, path):
            continue
        # "towers.hpp, .cpp" lists both files: one mention of the name suffices.
        if readme and not re.search(rf"(?<!\w){re.escape(path.stem)}[.`]", readme.read_text(encoding="utf-8")):
            wrong.append(f"{readme.relative_to(root)} does not list {path}")
    return wrong


def long_files(root):
    wrong = []
    for path in files(root, "harness", "strategies", "scripts", "tests", suffixes=SOURCES):
        lines = len((root / path).read_text(encoding="utf-8").splitlines())
        in_catalogue = path.parent == pathlib.Path("strategies")
        is_source = path.parts[0] in ("harness", "strategies")
        limit = LONGEST_STRATEGY if in_catalogue else LONGEST_SOURCE if is_source else LONGEST_FILE
        if lines > limit:
            wrong.append(f"{path}: {lines} lines, at most {limit} are wanted")
    return wrong


def full_folders(root):
    counts = collections.Counter(path.parent for path in files(root, "harness", "strategies"))
    return [
        f"{folder}: {count} sources, at most {MOST_SOURCES} are wanted in a folder"
        for folder, count in sorted(counts.items())
        if count > MOST_SOURCES
    ]


def clipped_comments(root):
    """A comment behind code is a sentence or a name, not the end of one that the code begins. Kernels have some left."""
    return [
        f"{path}: say it in the name, or in a sentence: // {comment}"
        for path in files(root, "harness", "strategies")
        if path.parts[:2] != ("strategies", "kernels")
        for comment in re.findall(r"\S[ \t]*// ((?:of|that|likewise|or|and)\b.*)", (root / path).read_text(encoding="utf-8"))
    ]


def anchors(page):
    """Of its headings, as links name them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^(    |```).*", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", heading)).lower().replace(" ", "-") for heading in headings}


def links_to_nowhere(root):
    """Those of pages to files of the project and their headings, code apart."""
    wrong = []
    pages = [path.relative_to(root) for path in root.glob("*.md")] + files(root, *FOLDERS_WITH_README, suffixes={".md"})
    for page in pages:
        prose = re.sub(r"^(    |```).*|`[^`\n]*`", "", (root / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
        for target, anchor in re.findall(r"\]\((?!\w+:|/)([^)#\s]*)#?([^)\s]*)", prose):
            there = root / page.parent / target if target else root / page
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
                wrong.append(f"{page}: the link to {target}{'#' if anchor else ''}{anchor} leads nowhere")
    return wrong


class Rules(unittest.TestCase):
    root = pathlib.Path(__file__).resolve().parent.parent

    def holds(self, rule):
        wrong = rule(self.root)
        if wrong:
            self.fail("\n" + "\n".join(wrong))

    def test_includes_point_downwards(self):
        self.holds(upward_includes)

    def test_includes_make_no_circle(self):
        self.holds(circular_includes)

    def test_only_the_communicator_names_c10d(self):
        self.holds(c10d_outside_communicator)

    def test_harness_names_no_strategy(self):
        self.assertIn("per_tower", registered_strategies(self.root))
        self.holds(strategies_named_by_harness)

    def test_plain_parts_include_no_torch(self):
        self.holds(torch_in_plain_files)

    def test_the_library_needs_no_program(self):
        self.holds(program_in_library)

    def test_steps_wait_for_no_device(self):
        self.holds(waits_for_a_device)

    def test_no_thread_local_restores_a_stream(self):
        self.holds(streams_restored_too_late)

    def test_wrappers_hand_on_everything(self):
        self.holds(what_wrappers_forget)

    def test_readmes_list_every_source(self):
        self.holds(gaps_in_readmes)

    def test_files_stay_short(self):
        self.holds(long_files)

    def test_comments_are_not_clipped(self):
        self.holds(clipped_comments)

    def test_folders_stay_small(self):
        self.holds(full_folders)

    def test_links_lead_to_files(self):
        self.holds(links_to_nowhere)


class PlantedFaults(unittest.TestCase):
    """A sound tree passes every rule; one changed file makes exactly the rule meant for it fail."""

    rules = [
        upward_includes,
        circular_includes,
        c10d_outside_communicator,
        strategies_named_by_harness,
        torch_in_plain_files,
        program_in_library,
        waits_for_a_device,
        streams_restored_too_late,
        what_wrappers_forget,
        gaps_in_readmes,
        long_files,
        full_folders,
        clipped_comments,
        links_to_nowhere,
    ]
    sound = {
        "cmake/library.cmake": "add_library(harness OBJECT harness/embed/*.cpp)\n",
        "harness/README.md": "`towers.hpp`, `network.hpp`, `strategy.hpp`",
        "harness/towers.hpp": "// pooled by \"sync\" through c10d\n#include <vector>\n",
        "harness/network.hpp": '#include <torch/types.h>\n#include "harness/towers.hpp"\n',
        "harness/strategy.hpp": "class Strategy {\n  virtual Notes notes() const { return {}; }\n};\n",
        "harness/communicator/README.md": "`world.cpp`",
        "harness/communicator/world.cpp": "#include <torch/csrc/distributed/c10d/TCPStore.hpp>\nc10d::TCPStore a;\n",
        "harness/embed/README.md": "`bnlab.cpp`",
        "harness/embed/bnlab.cpp": '#include "harness/towers.hpp"\n',
        "harness/experiment/README.md": "`spec.hpp`",
        "harness/experiment/spec.hpp": '#include "harness/towers.hpp"\n',
        "strategies/README.md": "`sync.cpp`",
        "strategies/sync.cpp": '#include "harness/network.hpp"\nconst Registered<Strategy> entry{{"sync", ""}};\n',
        "strategies/engine/README.md": "`wrapper.hpp`",
        "strategies/engine/wrapper.hpp": "base_->norm(site);\nbase_->notes();\n",
        "scripts/README.md": "",
        "tests/README.md": "`started.cpp`",
        "tests/started.cpp": "",
        "tests/together_test.cpp": "// What several do together.\n",
        "tests/towers_test.cpp": '#include "strategies/sync.hpp"\n',
        "experiments/README.md": "`quickstart.json`",
        "experiments/quickstart.json": "{}",
        "results/README.md": "",
    }

    def violations(self, changes):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**self.sound, **changes}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return {rule.__name__: rule(root) for rule in self.rules}

    def check_caught(self, rule, name, text, **more):
        failing = [other for other, wrong in self.violations({name: text, **more}).items() if wrong]
        self.assertEqual([rule.__name__], failing)

    def test_a_sound_tree_passes(self):
        self.assertEqual([], [wrong for found in self.violations({}).values() for wrong in found])

    def test_upward_include(self):
        text = self.sound["harness/strategy.hpp"] + '#include "harness/experiment/spec.hpp"\n'
        self.check_caught(upward_includes, "harness/strategy.hpp", text)

    def test_harness_including_a_strategy(self):
        text = self.sound["harness/strategy.hpp"] + '#include "strategies/sync.hpp"\n'
        self.check_caught(upward_includes, "harness/strategy.hpp", text)

    def test_strategy_including_more_than_the_interface(self):
        text = self.sound["strategies/sync.cpp"] + '#include "harness/experiment/spec.hpp"\n'
        self.check_caught(upward_includes, "strategies/sync.cpp", text)

    def test_include_relative_to_the_file(self):
        self.check_caught(upward_includes, "harness/experiment/spec.hpp", '#include "keys.hpp"\n')

    def test_sources_that_include_each_others_headers(self):
        text = self.sound["strategies/engine/wrapper.hpp"] + '#include "strategies/sync.hpp"\n'
        source = self.sound["strategies/sync.cpp"] + '#include "strategies/engine/wrapper.hpp"\n'
        self.check_caught(circular_includes, "strategies/engine/wrapper.hpp", text, **{"strategies/sync.cpp": source})

    def test_c10d_outside_the_communicator(self):
        self.check_caught(c10d_outside_communicator, "harness/network.hpp", "c10d::ReduceOp sum;\n")

    def test_strategy_named_in_code(self):
        self.check_caught(strategies_named_by_harness, "harness/towers.hpp", 'bool b = name == "sync";\n')

    def test_torch_behind_another_header(self):
        self.check_caught(torch_in_plain_files, "harness/experiment/spec.hpp", '#include "harness/network.hpp"\n')

    def test_torch_in_a_plain_folder_within_another(self):
        self.check_caught(torch_in_plain_files, "harness/communicator/host/world.cpp", "#include <torch/types.h>\n")

    def test_library_that_needs_the_program(self):
        text = '#include "harness/communicator/world.hpp"\n'
        self.check_caught(program_in_library, "harness/embed/bnlab.cpp", text)

    def test_waiting_copy(self):
        text = self.sound["strategies/sync.cpp"] + "auto n = at::tensor(counts).to(x.device());\n"
        self.check_caught(waits_for_a_device, "strategies/sync.cpp", text)

    def test_thread_local_stream(self):
        text = self.sound["strategies/sync.cpp"] + "thread_local std::optional<OwnStream> stream;\n"
        self.check_caught(streams_restored_too_late, "strategies/sync.cpp", text)

    def test_something_a_wrapper_does_not_hand_on(self):
        text = "class Strategy {\n  virtual Notes notes() const;\n  virtual bool repeats(const Step& step) const {}\n};\n"
        self.check_caught(what_wrappers_forget, "harness/strategy.hpp", text)

    def test_unlisted_file(self):
        self.check_caught(gaps_in_readmes, "tests/world_test.cpp", "")  # communicator/ has the world

    def test_folder_without_readme(self):
        self.check_caught(gaps_in_readmes, "harness/models/unet.cpp", "")

    def test_long_file(self):
        self.check_caught(long_files, "harness/towers.hpp", "\n" * (LONGEST_SOURCE + 1))

    def test_long_strategy(self):
        text = self.sound["strategies/sync.cpp"] + "\n" * LONGEST_STRATEGY
        self.check_caught(long_files, "strategies/sync.cpp", text)

    def test_link_to_nowhere(self):
        self.check_caught(links_to_nowhere, "results/README.md", "[sync](../strategies/sync.cpp), [gone](../again/README.md)")
        self.check_caught(links_to_nowhere, "results/README.md", "# A title\n[here](#a-title), [gone](../strategies/README.md#files)")

    def test_clipped_comment(self):
        self.check_caught(clipped_comments, "harness/towers.hpp", "int64_t bytes = 0;  // of both files\n")

    def test_full_folder(self):
        names = [f"b{i}" for i in range(MOST_SOURCES)]
        readme = self.sound["harness/embed/README.md"] + " ".join(f"`{name}.hpp`" for name in names)
        more = {f"harness/embed/{name}.hpp": "" for name in names}
        self.check_caught(full_folders, "harness/embed/README.md", readme, **more)


if __name__ == "__main__":
    unittest.main()
