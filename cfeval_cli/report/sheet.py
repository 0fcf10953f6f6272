"""Figures that are drawn once: what is drawn is kept, and every format is made from it.

To draw is most of the work of matplotlib, whatever the format: ticks, names and their places are found each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from matplotlib.backend_bases import FigureCanvasBase, GraphicsContextBase, RendererBase
from matplotlib.figure import Figure
from matplotlib.transforms import Affine2D, Bbox, TransformedPath

DPI = 72  # dots to the inch of what is kept, as svg and pdf count them

Step = Callable[[Any, float], None]  # draws a part with a renderer that has so many times the dots


class Sheet(Figure):
    """A figure of so many inches, whose parts find their places when it is first drawn."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=DPI, layout="constrained")
        self._steps: list[Step] = []
        _Canvas(self)

    def save(self, stream: Any, kind: str, **how: Any) -> None:
        """As savefig does, in any format; nothing may be added to the figure after the first time."""
        if not self._steps:
            for axis in (axis for axes in self.axes for axis in (axes.xaxis, axes.yaxis)):
                if not axis.get_label_text():
                    axis.set_label_coords(0, 0)  # else it is found again and again, beside all ticks of all panels
            recorder = _recorder()
            recorder.steps = self._steps
            super().draw(recorder)
        self.savefig(stream, format=kind, **how)

    def draw(self, renderer: Any) -> None:
        """Draw again what was drawn."""
        for step in self._steps:
            step(renderer, self.dpi / DPI)  # which changes where a part is made of dots


class _Canvas(FigureCanvasBase):
    """What sizes are asked of before anything is drawn: they are the same in all formats."""

    def get_renderer(self) -> RendererBase:
        return _recorder()


class _Recorder(RendererBase):
    """Keeps what it is told to draw."""

    steps: list[Step]

    def draw_path(self, gc: Any, path: Any, transform: Any, rgbFace: Any = None) -> None:  # noqa: N803  matplotlib's
        pen, place = _Pen(gc), transform.frozen()
        self.steps.append(
            lambda renderer, scale: renderer.draw_path(pen.of(renderer, scale), path, _larger(place, scale), rgbFace)
        )

    def draw_markers(
        self, gc: Any, marker_path: Any, marker_trans: Any, path: Any, trans: Any, rgbFace: Any = None  # noqa: N803
    ) -> None:  # fmt: skip
        pen, size, place = _Pen(gc), marker_trans.frozen(), trans.frozen()
        self.steps.append(
            lambda renderer, scale: renderer.draw_markers(
                pen.of(renderer, scale), marker_path, _larger(size, scale), path, _larger(place, scale), rgbFace
            )
        )

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ) -> None:
        pen = _Pen(gc)

        def step(renderer: Any, scale: float) -> None:
            up = renderer.get_canvas_width_height()[1] - y * scale if renderer.flipy() else y * scale
            renderer.draw_text(pen.of(renderer, scale), x * scale, up, s, prop, angle, ismath=ismath, mtext=mtext)

        self.steps.append(step)

    def open_group(self, s: str, gid: str | None = None) -> None:
        self.steps.append(lambda renderer, _: renderer.open_group(s, gid))

    def close_group(self, s: str) -> None:
        self.steps.append(lambda renderer, _: renderer.close_group(s))

    def start_rasterizing(self) -> None:
        self.steps.append(lambda renderer, _: renderer.start_rasterizing())

    def stop_rasterizing(self) -> None:
        self.steps.append(lambda renderer, _: renderer.stop_rasterizing())

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> tuple[float, float, float]:
        width, height, descent = self._text2path.get_text_width_height_descent(s, prop, ismath)
        return width, height, descent

    def flipy(self) -> bool:
        return False


class _Pen:
    """Colours, lines and edges of what is drawn, as they were."""

    def __init__(self, gc: Any) -> None:
        self._gc = GraphicsContextBase()
        self._gc.copy_properties(gc)
        edge, (path, place) = gc.get_clip_rectangle(), gc.get_clip_path()
        self._edge = None if edge is None else edge.frozen()
        self._path = None if path is None else (path, place.frozen())

    def of(self, renderer: Any, scale: float) -> Any:
        """For a renderer with so many times the dots."""
        gc = renderer.new_gc()
        gc.copy_properties(self._gc)
        if self._edge is not None:
            gc.set_clip_rectangle(Bbox(self._edge.get_points() * scale))
        if self._path is not None:
            gc.set_clip_path(TransformedPath(self._path[0], _larger(self._path[1], scale)))
        return gc


def _larger(place: Any, scale: float) -> Any:
    """An affine transform to so many times the dots."""
    return place if scale == 1 else Affine2D(place.get_matrix()).scale(scale)


@cache
def _recorder() -> _Recorder:
    """One for all figures: it knows how large a text is that was asked for before."""
    return _Recorder()
