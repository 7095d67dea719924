"""The terminal program of `sluice top`, made with textual."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App as TextualApp
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen as TextualScreen
from textual.widgets import DataTable, Footer, Input, Static

from sluice_cli.admin.port import AdminPort, AdminPortError
from sluice_cli.top.groups import ORDERS, LiveState, Order, left_ms
from sluice_cli.top.texts import COLUMNS, cells_of, group_lines, head_lines

EVENTS: Final = "/ui/events"
ROWS_MAX: Final = 200
"""Groups in the table; a filter finds the others."""
AGAIN_S: Final = 2.0
"""Time before a lost connection is made again, and between two readings of an opened group."""
_ORDERS: Final[Sequence[Order]] = tuple(ORDERS)


class GroupScreen(TextualScreen[None]):
    """One group in full, read again every two seconds."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "back"), Binding("q", "app.quit", "quit")]

    def __init__(self, port: AdminPort, number: int) -> None:
        super().__init__()
        self._port = port
        self._number = number

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        yield VerticalScroll(Static("loading", id="group", markup=False))
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read."""
        self._read()
        self.set_interval(AGAIN_S, self._read)

    def _read(self) -> None:
        self.run_worker(self._ask, thread=True, exclusive=True)

    def _ask(self) -> None:
        try:
            text = "\n".join(group_lines(self._port.get("/ui/group", id=self._number)))
        except AdminPortError as error:
            text = str(error)
        self.app.call_from_thread(self.query_one("#group", Static).update, text)


class TopApp(TextualApp[str]):
    """Who waits now. `run` returns why it ended, or None."""

    CSS = """
    #head { height: auto; padding: 0 1; }
    #filter { display: none; }
    DataTable { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, port: AdminPort, order: Order = "waiting", part: str = "") -> None:
        super().__init__()
        self._port = port
        self._order: Order = order
        self._part = part
        self._state = LiveState()
        self._over = threading.Event()

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        yield Static("connecting", id="head", markup=False)
        yield Input(placeholder="part of a name, broker or quota; Enter ends", id="filter", value=self._part)
        table: DataTable[Text] = DataTable(cursor_type="row", zebra_stripes=True, id="groups")
        table.add_columns(*COLUMNS)
        yield table
        yield Footer()

    def on_mount(self) -> None:
        """Begin to follow the proxy."""
        self.query_one("#groups").focus()
        threading.Thread(target=self._follow, daemon=True).start()

    def on_unmount(self) -> None:
        """Stop following."""
        self._over.set()

    def action_sort(self) -> None:
        """Use the next order."""
        self._order = _ORDERS[(_ORDERS.index(self._order) + 1) % len(_ORDERS)]
        self._draw()

    def action_filter(self) -> None:
        """Ask for a part of a name."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the text is written."""
        self._part = event.value
        self._draw()

    def on_input_submitted(self) -> None:
        """Return to the table."""
        self.query_one("#filter").display = bool(self._part)
        self.query_one("#groups").focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the group of a row."""
        if event.row_key.value is not None:
            self.push_screen(GroupScreen(self._port, int(event.row_key.value)))

    def _follow(self) -> None:
        """Read events until the program ends; in a thread."""
        is_known = False
        while not self._over.is_set():
            try:
                for name, data in self._port.events(EVENTS):
                    if self._over.is_set():
                        return
                    self.call_from_thread(self._apply, name, data)
                    is_known = True
                problem = "the proxy ended the connection"
            except AdminPortError as error:
                problem = str(error)
            if self._over.is_set():
                return
            if not is_known:
                self.call_from_thread(self.exit, problem)
                return
            self.call_from_thread(self._say, f"{problem}; trying again")
            time.sleep(AGAIN_S)

    def _apply(self, name: str, data: dict[str, object]) -> None:
        self._state.apply(name, data)
        self._draw()

    def _say(self, text: str) -> None:
        self.query_one("#head", Static).update(text)

    def _draw(self) -> None:
        state = self._state
        if not state.head:
            return
        table = self.query_one("#groups", DataTable)
        found = state.selected(self._order, self._part)
        self._say("\n".join([*head_lines(state), f"{len(found)} selected, by {self._order}"]))
        row = table.cursor_row
        table.clear()
        for group in found[:ROWS_MAX]:
            style = "bold yellow" if left_ms(group, state.now_ms) else ""
            table.add_row(*(Text(cell, style) for cell in cells_of(group, state.now_ms)), key=str(group["id"]))
        table.move_cursor(row=min(row, max(0, len(found) - 1)))
