"""Shared foundations: errors, files, the console, settings, devices and processes.

Independent of models and decoding. Other packages may use all of it; `settings` and `config` describe a recipe.
"""
