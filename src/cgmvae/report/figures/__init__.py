"""Figures, a family of them a file; :mod:`cgmvae.report` has their public names.

What they share is in ``style``, ``names`` and ``interactive``.
"""
