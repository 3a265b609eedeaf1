"""Hand-written protocol parts of the hot paths, on private parts of uvicorn and websockets.

| here | leans on |
| --- | --- |
| `httpprotocol.LeanHttp` | `HttpToolsProtocol` of `uvicorn.protocols.http.httptools_impl`: its methods `connection_made`, `connection_lost`, `resume_writing`, `on_message_begin`, `on_headers_complete`, `on_message_complete`, `on_response_complete`, `handle_websocket_upgrade`, `_should_upgrade`, `_unset_keepalive_if_required`, and that `data_received` does no more than ours, its attributes `client`, `connections`, `cycle`, `expect_100_continue`, `flow`, `headers`, `loop`, `parser`, `scope`, `server_state.default_headers`, `tasks`, `transport`, `url`; and `STATUS_LINE` |
| `httpprotocol.LeanCycle` | what that protocol asks of its `cycle`: `body`, `disconnected`, `keep_alive`, `message_event`, `more_body`, `response_complete` |
| `agentsocket.AgentSocket` | how `handle_websocket_upgrade` makes a `ws_protocol_class(config, server_state, app_state)` and hands the connection over; `server_state.connections`, whose members the server shuts down |
| `handshakes`, with `api.server` | that `uvicorn.Server.startup` with no sockets serves all the same, `config.http_protocol_class(config, server_state, app_state)` makes a connection's protocol, and `config.ssl` is the context |
| `agentsocket` | `ServerProtocol` of websockets without its own connection: `state=OPEN`, `current_size`, `events_received`, `data_to_send`, `close_expected`; `apply_mask` |

No library promises these; `tests/unit/api/test_fast_private_parts.py` fails when one changes.
"""  # noqa: E501
