"""Means with 95 % intervals of Student's t, with nothing but the standard library.

The distribution function comes from the regularised incomplete beta function, evaluated by Lentz's continued fraction
(Numerical Recipes, section 6.4); the quantile inverts it by bisection.
"""

import math
from collections import namedtuple

Interval = namedtuple("Interval", "n mean half_width")  # half_width is None where n < 2


def _continued_fraction(a, b, x):
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1.0 + step * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + step / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def incomplete_beta(a, b, x):
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1.0 - front * _continued_fraction(b, a, 1 - x) / b


def t_quantile(probability, degrees):
    """The t with P(T <= t) = probability, for 0.5 <= probability < 1 and `degrees` >= 1 of freedom."""
    low, high = 0.0, 1.0
    while _t_cdf(high, degrees) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if _t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_cdf(t, degrees):  # for t >= 0
    return 1.0 - incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2


def t_interval(values, confidence=0.95):
    """Mean and half-width of its confidence interval. `values` must not be empty."""
    values = list(values)
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(n, mean, None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return Interval(n, mean, t_quantile((1 + confidence) / 2, n - 1) * deviation / math.sqrt(n))
