"""A client of slicefeed.inventory.v1, written from the comments of inventory.proto alone.

It prints one line for each step; the line "change" asks the test to make worker-00001 not ready.
"""

import sys

import grpc

from contract import Contract, Set, connect, expect, expect_serving


def main(descriptors, address, ca, subscriber, operator):
    contract = Contract(descriptors, "slicefeed.inventory.v1")
    message = contract.message
    channel, operators = (connect(address, ca, identity, "inventory.example") for identity in (subscriber, operator))
    unary = lambda method, request, on=channel: contract.call(on, method, request)
    watch = lambda **fields: unary("InventoryService/WatchNodes", message("WatchNodesRequest", **fields))

    current = Set(key=lambda node: node.name, is_valid=lambda node: node.addresses)
    stream = watch(confirm_observations=2)
    first = next(stream)
    assert first.reset and first.heartbeat_interval.seconds == 5, "R7, R9"
    current.apply(first)
    if not first.synced:
        current.until(stream, lambda m: True)
    assert len(current.items) == 1200
    print("restart: a reset in several messages, with count and digest", flush=True)

    print("change", flush=True)
    current.until(stream, lambda m: len(m.upserts) == 1)
    assert current.items["worker-00001"].state == 3
    print("a change: one upsert", flush=True)

    number = current.until(stream, lambda m: True).status.observation
    granted = unary("InventoryService/RequestObservations", message("RequestObservationsRequest", observations=2)).granted
    assert granted == 2
    current.until(stream, lambda m: m.status.observation > number)
    print("requested observations arrive in the stream", flush=True)
    stream.cancel()

    stream = watch(cursor=current.cursor, digest=current.digest)
    m = next(stream)
    assert m.synced and not m.reset and not m.upserts and not m.removed, "R5"
    stream.cancel()
    print("resume: one message without upserts", flush=True)

    stream = watch(cursor=current.cursor, digest=bytes(16))
    assert next(stream).reset, "R7"
    stream.cancel()
    print("resume with another digest: a reset", flush=True)

    expect(grpc.StatusCode.INVALID_ARGUMENT, lambda: watch(digest=bytes(16)))
    expect(grpc.StatusCode.INVALID_ARGUMENT, lambda: watch(cursor=message("Cursor", revision=1), digest=bytes(16)))
    expect(grpc.StatusCode.INVALID_ARGUMENT, lambda: watch(confirm_observations=11))
    print("malformed requests: INVALID_ARGUMENT", flush=True)

    for method, names in (("InventoryService/ListNodes", "ListNodesRequest"), ("InventoryOperatorService/ListNodeDetails", "ListNodeDetailsRequest")):
        token, sizes, listed = "", [], []
        while not sizes or token:
            page = unary(method, message(names, page_size=500, page_token=token), operators)
            token = page.next_page_token
            sizes.append(len(page.nodes))
            listed += [node.name for node in page.nodes]
        assert sizes == [500, 500, 200] and listed == sorted(current.items), sizes
        print(method + ": three pages", flush=True)

    details = message("ListNodeDetailsRequest", names=["worker-00001"])
    node = unary("InventoryOperatorService/ListNodeDetails", details, operators).nodes[0]
    assert node.WhichOneof("result") == "published" and node.published.name == node.name
    explained = unary("InventoryOperatorService/ExplainNodes", message("ExplainNodesRequest", names=["worker-00001", "nobody"]), operators)
    assert [e.name for e in explained.explanations] == ["worker-00001", "nobody"]
    assert all(step.stage and step.result for e in explained.explanations for step in e.steps)
    print("an operator gets details and explanations", flush=True)

    expect(grpc.StatusCode.PERMISSION_DENIED, lambda: unary("InventoryOperatorService/ListNodeDetails", details))
    expect(grpc.StatusCode.PERMISSION_DENIED, lambda: unary("InventoryOperatorService/ExplainNodes", message("ExplainNodesRequest", names=["a"])))
    print("a subscriber gets neither", flush=True)

    expect_serving(descriptors, channel, "slicefeed.inventory.v1.InventoryService")
    print("health: SERVING under both names", flush=True)


main(*sys.argv[1:])
