// c10d's header includes this file and uses nothing of it.
#pragma once
