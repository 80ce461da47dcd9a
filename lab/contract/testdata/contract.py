"""What clients of both contracts share. Messages and methods are generated at run time from a descriptor set."""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


class Contract:
    """The messages and methods of a package."""

    def __init__(self, descriptors, package):
        files = descriptor_pb2.FileDescriptorSet.FromString(open(descriptors, "rb").read())
        self.package = package + "."
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)
        if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and newer
            self.message_class = message_factory.GetMessageClass
        else:
            self.message_class = message_factory.MessageFactory(self.pool).GetPrototype

    def message(self, name, **fields):
        return self.message_class(self.pool.FindMessageTypeByName(self.package + name))(**fields)

    def call(self, channel, method, request):
        """Calls Service/Method, and returns the response or the responses of a stream."""
        service, name = method.split("/")
        descriptor = self.pool.FindServiceByName(self.package + service).FindMethodByName(name)
        proto = descriptor_pb2.MethodDescriptorProto()
        descriptor.CopyToProto(proto)
        kind = channel.unary_stream if proto.server_streaming else channel.unary_unary
        response = self.message_class(descriptor.output_type)
        path = "/" + self.package + method
        stub = kind(path, request_serializer=lambda m: m.SerializeToString(), response_deserializer=response.FromString)
        return stub(request, timeout=60)


def connect(address, ca, identity, server):
    """Opens a channel with a client certificate. The server is identified by its SAN."""
    read = lambda path: open(path, "rb").read()
    credentials = grpc.ssl_channel_credentials(read(ca), read(identity + ".key"), read(identity + ".crt"))
    return grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", server)])


def expect(code, call):
    """Makes a call that has to fail with a status code."""
    try:
        response = call()
        if hasattr(response, "__next__"):
            next(response)
    except grpc.RpcError as error:
        assert error.code() == code, error
    else:
        raise AssertionError("want " + code.name)


def expect_serving(descriptors, channel, service):
    """Checks that gRPC health says SERVING under both names."""
    health = Contract(descriptors, "grpc.health.v1")
    for name in ("", service):
        assert health.call(channel, "Health/Check", health.message("HealthCheckRequest", service=name)).status == 1


class Set:
    """The set of a client with its cursor and digest (rules R1 to R4)."""

    def __init__(self, key, is_valid):
        self.key, self.is_valid = key, is_valid
        self.items, self.cursor, self.digest, self.staged = {}, None, b"", None

    def apply(self, m):
        assert len(m.upserts) <= 500 and len(m.removed) <= 500, "R3"
        if m.reset:
            self.staged = {}
        elif self.staged is None:
            self.staged = dict(self.items)
        for key in m.removed:
            del self.staged[key]
        for item in m.upserts:
            assert self.key(item) and len(item.fingerprint) == 16 and self.is_valid(item), "R13"
            self.staged[self.key(item)] = item
        if not m.synced:
            return
        assert m.HasField("status") and m.cursor.epoch, "R13"
        digest = 0
        for item in self.staged.values():
            digest ^= int.from_bytes(item.fingerprint, "big")
        assert m.count == len(self.staged) and m.digest == digest.to_bytes(16, "big"), "R4"
        self.items, self.cursor, self.digest, self.staged = self.staged, m.cursor, m.digest, None

    def until(self, stream, done):
        """Applies the messages of a stream until a synced one is as wanted, and returns it."""
        for m in stream:
            self.apply(m)
            if m.synced and done(m):
                return m
        raise AssertionError("the stream ended")
