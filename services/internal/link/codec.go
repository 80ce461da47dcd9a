package link

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

var errMalformed = status.Error(
	codes.InvalidArgument,
	"malformed request: not a protobuf message of the method's type, or a string is not UTF-8",
)

// malformedMark marks a request that could not be decoded: an unknown field with the largest possible
// number, which no message of the contract has. A client that sends it gets the same error.
var malformedMark = protowire.AppendVarint(protowire.AppendTag(nil, protowire.MaxValidNumber, protowire.VarintType), 1)

// requestCodec decodes requests. It marks malformed ones, so that an interceptor rejects them with
// INVALID_ARGUMENT: grpc itself returns INTERNAL, which blames the server, and calls no interceptor.
type requestCodec struct{ encoding.CodecV2 }

func newRequestCodec() requestCodec { return requestCodec{encoding.GetCodecV2("proto")} }

func (c requestCodec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	m, ok := v.(proto.Message)
	if err == nil || !ok {
		return err
	}
	proto.Reset(m)
	m.ProtoReflect().SetUnknown(malformedMark)
	return nil
}

func checkDecoded(request any) error {
	if m, ok := request.(proto.Message); ok && string(m.ProtoReflect().GetUnknown()) == string(malformedMark) {
		return errMalformed
	}
	return nil
}
