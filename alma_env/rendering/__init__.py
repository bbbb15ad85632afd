"""Pictures of an episode in progress: images for videos, lines of text, and a display in the terminal.

An environment describes its episode as a `view.View`; `renderer.Renderer` draws it in one of the three render modes.
Matplotlib is imported by the first image, and by nothing else.
"""
