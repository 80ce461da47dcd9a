package hostile

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// raw is a codec that sends bytes as they are, also those that are no message.
type raw struct{}

// Marshal takes bytes, or a message.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		var err error
		if b, err = proto.Marshal(v.(proto.Message)); err != nil {
			return nil, err
		}
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal reads a message, or takes the bytes as they are.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data.Materialize()
		return nil
	}
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}

// Name is that of the codec whose place it takes.
func (raw) Name() string { return "proto" }
