"""What every package needs and none owns: errors, files, the console, settings, devices and processes.

Knows nothing of translation. Anyone may use any of it; `settings` and `config` describe a recipe.
"""
