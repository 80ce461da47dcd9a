"""A client of slicefeed.inventory.v1, written from the comments of inventory.proto alone.

Its messages and methods are generated at run time from a descriptor set. It prints one line for each
step; the line "change" asks the test to make worker-00001 not ready.
"""

import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

INVENTORY = "slicefeed.inventory.v1."


class Contract:
    """The messages and methods of a descriptor set."""

    def __init__(self, path):
        files = descriptor_pb2.FileDescriptorSet.FromString(open(path, "rb").read())
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)
        if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and newer
            self.message_class = message_factory.GetMessageClass
        else:
            self.message_class = message_factory.MessageFactory(self.pool).GetPrototype

    def message(self, name, **fields):
        return self.message_class(self.pool.FindMessageTypeByName(name))(**fields)

    def call(self, channel, method, request):
        """Calls /service/method, and returns the response or the responses of a stream."""
        service, name = method.split("/")
        descriptor = self.pool.FindServiceByName(service).FindMethodByName(name)
        proto = descriptor_pb2.MethodDescriptorProto()
        descriptor.CopyToProto(proto)
        kind = channel.unary_stream if proto.server_streaming else channel.unary_unary
        response = self.message_class(descriptor.output_type)
        stub = kind("/" + method, request_serializer=lambda m: m.SerializeToString(), response_deserializer=response.FromString)
        return stub(request, timeout=60)


class Set:
    """The set of a client with its cursor and digest (rules R1 to R4)."""

    def __init__(self):
        self.nodes, self.cursor, self.digest, self.staged = {}, None, b"", None

    def apply(self, m):
        assert len(m.upserts) <= 500 and len(m.removed) <= 500, "R3"
        if m.reset:
            self.staged = {}
        elif self.staged is None:
            self.staged = dict(self.nodes)
        for name in m.removed:
            del self.staged[name]
        for node in m.upserts:
            assert node.name and node.addresses and len(node.fingerprint) == 16, "R13"
            self.staged[node.name] = node
        if not m.synced:
            return
        assert m.HasField("status") and m.cursor.epoch, "R13"
        digest = 0
        for node in self.staged.values():
            digest ^= int.from_bytes(node.fingerprint, "big")
        assert m.count == len(self.staged) and m.digest == digest.to_bytes(16, "big"), "R4"
        self.nodes, self.cursor, self.digest, self.staged = self.staged, m.cursor, m.digest, None


def main(descriptors, address, ca, subscriber, operator):
    contract = Contract(descriptors)
    message = lambda name, **fields: contract.message(INVENTORY + name, **fields)

    def connect(identity):
        read = lambda path: open(path, "rb").read()
        credentials = grpc.ssl_channel_credentials(read(ca), read(identity + ".key"), read(identity + ".crt"))
        return grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", "inventory.example")])

    channel, operators = connect(subscriber), connect(operator)
    unary = lambda method, request, on=channel: contract.call(on, INVENTORY + method, request)
    watch = lambda **fields: unary("InventoryService/WatchNodes", message("WatchNodesRequest", **fields))

    def expect(code, call):
        try:
            response = call()
            if hasattr(response, "__next__"):
                next(response)
        except grpc.RpcError as error:
            assert error.code() == code, error
        else:
            raise AssertionError("want " + code.name)

    def until(stream, current, done):
        for m in stream:
            current.apply(m)
            if m.synced and done(m):
                return m
        raise AssertionError("the stream ended")

    current = Set()
    stream = watch(confirm_observations=2)
    first = next(stream)
    assert first.reset and first.heartbeat_interval.seconds == 5, "R7, R9"
    current.apply(first)
    if not first.synced:
        until(stream, current, lambda m: True)
    assert len(current.nodes) == 1200
    print("restart: a reset in several messages, with count and digest", flush=True)

    print("change", flush=True)
    until(stream, current, lambda m: len(m.upserts) == 1)
    assert current.nodes["worker-00001"].state == 3
    print("a change: one upsert", flush=True)

    number = until(stream, current, lambda m: True).status.observation
    granted = unary("InventoryService/RequestObservations", message("RequestObservationsRequest", observations=2)).granted
    assert granted == 2
    until(stream, current, lambda m: m.status.observation > number)
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
        assert sizes == [500, 500, 200] and listed == sorted(current.nodes), sizes
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

    for service in ("", INVENTORY + "InventoryService"):
        health = contract.call(channel, "grpc.health.v1.Health/Check", contract.message("grpc.health.v1.HealthCheckRequest", service=service))
        assert health.status == 1
    print("health: SERVING under both names", flush=True)


main(*sys.argv[1:])
