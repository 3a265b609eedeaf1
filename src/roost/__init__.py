"""roost finds every VM its place: a VM scheduler and control plane.

Importing this package stays quick: nothing heavy (NumPy, Numba, OR-Tools) is loaded until a
module that needs it is imported.
"""

__version__ = "0.1.0"
