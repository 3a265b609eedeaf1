"""Frequencies sharpened: all slow lines of a series, its level and its trend fitted together.

A spectrum tells a line of few cycles only to a part of a cycle, and lines near each other or near
the trend pull at one another. Least squares over coarse points (means of blocks) sets that right.
"""

import numpy as np

from roost.analysis.grid import Floats
from roost.analysis.kernels.compiling import entry_point, kernel

#: Lines that are fitted together, and the numbers that are solved for: three of each, and two.
MOST_FITTED = 6
UNKNOWNS = 3 * MOST_FITTED + 2


@kernel
def solve(matrix: Floats, right: Floats, size: int) -> int:
    """Solve a symmetric positive system in place by Cholesky; 1 where it cannot be, else 0."""
    for column in range(size):
        diagonal = matrix[column, column]
        for at in range(column):
            diagonal -= matrix[column, at] * matrix[column, at]
        if diagonal <= 1e-10 * matrix[column, column] or diagonal <= 0.0:
            return 1
        root = np.sqrt(diagonal)
        matrix[column, column] = root
        for row in range(column + 1, size):
            value = matrix[row, column]
            for at in range(column):
                value -= matrix[row, at] * matrix[column, at]
            matrix[row, column] = value / root
    for row in range(size):
        value = right[row]
        for at in range(row):
            value -= matrix[row, at] * right[at]
        right[row] = value / matrix[row, row]
    for back in range(size):
        row = size - 1 - back
        value = right[row]
        for at in range(row + 1, size):
            value -= matrix[at, row] * right[at]
        right[row] = value / matrix[row, row]
    return 0


@entry_point
def refine(
    coarse: Floats,
    weight: Floats,
    lines: Floats,
    slow: float,
    rounds: int,
    basis: Floats,
    matrix: Floats,
    right: Floats,
) -> int:
    """Sharpen the cycles of lines slower than `slow` in place, by `rounds` of Gauss-Newton.

    `coarse` and `weight` [series, block] are means of blocks and their numbers of known points.
    `basis` [UNKNOWNS, block], `matrix` and `right` are scratch. A fit that fails, or moves a line
    by more than 0.6 cycles, leaves the lines as they were.
    """
    blocks = coarse.shape[1]
    for row in range(coarse.shape[0]):
        count = 0
        while count < min(MOST_FITTED, lines.shape[1]) and lines[row, count, 0] > 0.0:
            count += 1
        any_slow = False
        for line in range(count):
            any_slow = any_slow or lines[row, line, 0] < slow
        if not any_slow:
            continue
        fitted = 0
        for line in range(count):
            # Lines that blocks cannot show stay out of the fit.
            if lines[row, line, 0] < 0.25 * blocks:
                right[UNKNOWNS + fitted] = lines[row, line, 0]
                right[UNKNOWNS + MOST_FITTED + fitted] = line
                fitted += 1
        failed = False
        for turn in range(rounds + 1):
            size = 2 + 2 * fitted if turn == 0 else 2 + 3 * fitted
            for line in range(fitted):
                angle = 2.0 * np.pi * right[UNKNOWNS + line] / blocks
                step_cos, step_sin = np.cos(angle), np.sin(angle)
                cos, sin = 1.0, 0.0
                a, b = right[2 + 2 * line], right[3 + 2 * line]
                for at in range(blocks):
                    basis[2 + 2 * line, at] = cos
                    basis[3 + 2 * line, at] = sin
                    if turn > 0:
                        place = at / blocks
                        slope = 2.0 * np.pi * place * (b * cos - a * sin)
                        basis[2 + 2 * fitted + line, at] = slope
                    cos, sin = cos * step_cos - sin * step_sin, sin * step_cos + cos * step_sin
            for at in range(blocks):
                basis[0, at] = 1.0
                basis[1, at] = at / blocks - 0.5
            for one in range(size):
                for other in range(one + 1):
                    total = 0.0
                    for at in range(blocks):
                        total += weight[row, at] * basis[one, at] * basis[other, at]
                    matrix[one, other] = total
                total = 0.0
                for at in range(blocks):
                    total += weight[row, at] * basis[one, at] * coarse[row, at]
                right[one] = total
            if solve(matrix, right, size) != 0:
                failed = True
                break
            if turn > 0:
                for line in range(fitted):
                    right[UNKNOWNS + line] += right[2 + 2 * fitted + line]
        if failed:
            continue
        for line in range(fitted):
            number = int(right[UNKNOWNS + MOST_FITTED + line])
            if abs(right[UNKNOWNS + line] - lines[row, number, 0]) > 0.6:
                failed = True
        if failed:
            continue
        for line in range(fitted):
            number = int(right[UNKNOWNS + MOST_FITTED + line])
            if lines[row, number, 0] < slow:
                lines[row, number, 0] = right[UNKNOWNS + line]
    return 0
