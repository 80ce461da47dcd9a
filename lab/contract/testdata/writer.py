"""A client of slicefeed.writer.v1, written from the comments of writer.proto, and of inventory.proto for the rules.

It prints one line for each step. These lines ask the test for something: "not ready" and "ready" change the report of
worker-00001, "create" creates the Service web/late, "cut off" ends the inventory, and "restart" restarts the writer.
"""

import random
import sys
import time

import grpc

from contract import Contract, Set, connect, expect, expect_serving

NODES = 1200
MANAGED, REJECTED = 1, 3


def is_valid(entry):
    if not (entry.namespace and entry.service):
        return False
    kind = entry.WhichOneof("kind")
    if kind == "endpoint":
        return 1 <= entry.endpoint.port.number <= 65535 and entry.endpoint.backend.address
    if kind == "group":
        addresses = [b.address for b in entry.group.backends]
        return addresses and len(set(addresses)) == len(addresses)
    return True


def conditions(backend):
    return backend.ready, backend.serving, backend.terminating


READY, NOT_READY = (True, True, False), (False, False, False)


def main(descriptors, address, ca, subscriber, operator):
    contract = Contract(descriptors, "slicefeed.writer.v1")
    message = contract.message
    dial = lambda identity: connect(address, ca, identity, "writer.example")
    channel, operators = dial(subscriber), dial(operator)
    service = lambda name: message("ServiceSelector", namespace="web", service=name)
    new_set = lambda: Set(key=lambda entry: entry.key, is_valid=is_valid)

    def watch(on=None, **fields):
        return contract.call(on or channel, "WriterService/WatchEndpoints", message("WatchEndpointsRequest", **fields))

    def resume(current, **fields):
        return watch(cursor=current.cursor, digest=current.digest, **fields)

    def endpoints(current):
        found = {}
        for entry in current.items.values():
            if entry.WhichOneof("kind") == "endpoint":
                found[entry.endpoint.backend.address] = entry.endpoint
        return found

    # Snapshot.
    shop = new_set()
    stream = watch(services=[service("shop")])
    first = next(stream)
    assert first.heartbeat_interval.seconds > 0, "R9"
    assert not first.synced or first.reset, "R7"
    shop.apply(first)
    all_ready = lambda current: [conditions(e.backend) for e in endpoints(current).values()] == [READY] * NODES
    if not all_ready(shop):
        shop.until(stream, lambda m: all_ready(shop))
    assert len(shop.items) == NODES + 1 and all(e.namespace == "web" and e.service == "shop" for e in shop.items.values())
    (target,) = [e.target for e in shop.items.values() if e.WhichOneof("kind") == "target"]
    assert target.state == MANAGED and not target.reason and [(p.name, p.protocol, p.number) for p in target.ports] == [("http", "TCP", 30080)]
    worker = endpoints(shop)["10.0.0.1"]
    assert worker.port == target.ports[0] and worker.backend.source == "default"
    print("snapshot: one target and its endpoints, with count and digest", flush=True)

    # Delta.
    print("not ready", flush=True)
    m = shop.until(stream, lambda m: m.upserts)
    assert len(m.upserts) == 1 and not m.reset and conditions(endpoints(shop)["10.0.0.1"].backend) == NOT_READY
    assert len(m.status.sources) == 1 and m.status.sources[0].name == "default" and m.status.sources[0].connected
    print("delta: one upsert", flush=True)
    stream.cancel()

    # Resume by digest, by cursor, and neither.
    m = next(resume(shop, services=[service("shop")]))
    assert m.synced and not m.reset and not m.upserts and not m.removed, "R5"
    print("resume: one message without upserts", flush=True)

    print("ready", flush=True)
    watching = new_set()
    stream = watch(services=[service("shop")])
    watching.until(stream, lambda m: all_ready(watching))
    stream.cancel()
    m = next(resume(shop, services=[service("shop")]))
    assert m.synced and not m.reset and len(m.upserts) == 1, "R6"
    shop.apply(m)
    print("resume after a change: one upsert", flush=True)

    assert next(watch(cursor=shop.cursor, digest=bytes(16), services=[service("shop")])).reset, "R7"
    assert next(resume(shop, services=[service("cart")])).reset, "R5"
    print("resume with another digest or selection: a reset", flush=True)

    # Groups.
    groups = new_set()
    stream = resume(shop, services=[service("shop")], group_by_port=True)
    assert not groups.items and groups.until(stream, lambda m: True).count == 2
    (group,) = [e.group for e in groups.items.values() if e.WhichOneof("kind") == "group"]
    assert group.port == worker.port and len(group.backends) == NODES and group.omitted == 0 and groups.cursor.epoch != shop.cursor.epoch
    stream.cancel()
    print("group_by_port: one target and one group", flush=True)

    # A Service that is no target yet.
    late = new_set()
    stream = watch(services=[service("late")])
    m = late.until(stream, lambda m: True)
    assert m.count == 0 and m.digest == bytes(16), "R4"
    print("create", flush=True)
    late.until(stream, lambda m: m.count == NODES + 1)
    stream.cancel()
    print("a Service becomes a target", flush=True)

    # Lists.
    def list_pages(method, request, on, **fields):
        token, pages = "", []
        while not pages or token:
            page = contract.call(on, method, message(request, page_token=token, **fields))
            token = page.next_page_token
            pages.append(list(page.targets))
        return pages

    pages = list_pages("WriterService/ListTargets", "ListTargetsRequest", channel, page_size=3)
    targets = [t for page in pages for t in page]
    deadline = time.monotonic() + 30
    while any(t.out_of_sync for t in targets):  # the first write for the new target is under way
        assert time.monotonic() < deadline, targets
        time.sleep(0.05)
        pages = list_pages("WriterService/ListTargets", "ListTargetsRequest", channel, page_size=3)
        targets = [t for page in pages for t in page]
    assert [len(page) for page in pages] == [3, 1] and [t.service for t in targets] == ["broken", "cart", "late", "shop"]
    assert [(t.ready, t.draining, t.not_ready) for t in targets] == [(0, 0, 0)] + [(NODES, 0, 0)] * 3
    broken = targets[0].target
    assert broken.state == REJECTED and broken.reason == "ServiceHasSelector" and broken.message
    (page,) = list_pages("WriterService/ListTargets", "ListTargetsRequest", channel, services=[service("cart"), service("nobody")])
    assert [t.service for t in page] == ["cart"]
    (page,) = list_pages("WriterService/ListTargets", "ListTargetsRequest", channel, services=[message("ServiceSelector", namespace="nowhere")])
    assert not page
    print("ListTargets: two pages, and a selection", flush=True)

    details = list_pages("WriterOperatorService/ListTargetDetails", "ListTargetDetailsRequest", operators, page_size=3)
    assert [t.target for page in details for t in page] == targets
    assert [list(t.sources) for page in details for t in page] == [["default"]] * 4
    explain = lambda on=operators, **fields: contract.call(on, "WriterOperatorService/ExplainEndpoint", message("ExplainEndpointRequest", **fields))
    e = explain(namespace="web", service="shop", address="::ffff:10.0.0.1")
    assert e.address == "10.0.0.1" and e.leading and e.verdict == 1 and e.rule == "table" and e.conclusion
    assert e.current == e.desired == worker_backend(shop) and not e.HasField("guard") and not e.HasField("probe")
    (report,) = e.sources
    assert report.ever_synced and report.listed and report.member == "worker-00001" and report.state == "READY"
    e = explain(namespace="web", service="shop", address="10.9.9.9")
    assert e.verdict == 6 and not e.rule and not e.HasField("current") and not e.HasField("desired") and e.conclusion
    expect(grpc.StatusCode.NOT_FOUND, lambda: explain(namespace="web", service="nobody", address="10.0.0.1"))
    print("an operator gets details and explanations", flush=True)

    expect(grpc.StatusCode.PERMISSION_DENIED, lambda: explain(channel, namespace="web", service="shop", address="10.0.0.1"))
    expect(grpc.StatusCode.PERMISSION_DENIED, lambda: list_pages("WriterOperatorService/ListTargetDetails", "ListTargetDetailsRequest", channel))
    print("a subscriber gets neither", flush=True)

    # Malformed requests.
    invalid = lambda call: expect(grpc.StatusCode.INVALID_ARGUMENT, call)
    invalid(lambda: watch(digest=bytes(16)))
    invalid(lambda: watch(cursor=shop.cursor))
    invalid(lambda: watch(services=[message("ServiceSelector", service="shop")]))
    invalid(lambda: watch(services=[service("shop")] * 101))
    invalid(lambda: list_pages("WriterService/ListTargets", "ListTargetsRequest", channel, page_size=-1))
    invalid(lambda: contract.call(channel, "WriterService/ListTargets", message("ListTargetsRequest", page_token="no token")))
    invalid(lambda: explain(namespace="web", service="shop", address="worker-00001"))
    print("malformed requests: INVALID_ARGUMENT", flush=True)

    expect_serving(descriptors, channel, "slicefeed.writer.v1.WriterService")
    print("health: SERVING under both names", flush=True)

    # The source is cut off, and then the writer restarts.
    stream = resume(shop, services=[service("shop")])
    shop.apply(next(stream))
    epoch = shop.cursor.epoch
    print("cut off", flush=True)
    m = shop.until(stream, lambda m: not m.status.sources[0].connected)
    assert not m.upserts and not m.removed and m.status.sources[0].reason and all_ready(shop), "R8"
    print("a source is cut off: a message with the status alone", flush=True)

    print("restart", flush=True)
    try:
        for m in stream:
            shop.apply(m)
        raise AssertionError("the stream ended without a status")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, "R11"
    for limit in (1, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4):
        time.sleep(random.uniform(0.5, limit))
        with dial(subscriber) as again:
            try:
                stream = watch(on=again, cursor=shop.cursor, digest=shop.digest, services=[service("shop")])
                m = shop.until(stream, lambda m: True)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE, error
                continue
            assert not m.reset and not m.upserts and not m.removed and shop.cursor.epoch != epoch, "R5"
            break
    else:
        raise AssertionError("the writer did not come back")
    print("restart: the set stays, and is resumed in another epoch by its digest", flush=True)


def worker_backend(current):
    return next(e.endpoint.backend for e in current.items.values() if e.WhichOneof("kind") == "endpoint" and e.endpoint.backend.address == "10.0.0.1")


main(*sys.argv[1:])
