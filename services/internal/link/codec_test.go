package link

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// bytesCodec sends bytes as they are.
type bytesCodec struct{ encoding.CodecV2 }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func TestMalformedRequestsGetInvalidArgument(t *testing.T) {
	r := newTestLink(t, serverCert)
	conn := r.dial(t, operatorCert, serverURI)
	codec := grpc.ForceCodecV2(bytesCodec{encoding.GetCodecV2("proto")})
	for _, c := range []struct {
		name string
		sent string
		want codes.Code
	}{
		{"a message", "\x0a\x01a", codes.OK},
		{"an empty message", "", codes.OK},
		{"an unknown field", "\x0a\x01a\x78\x05", codes.OK},
		{"a field that is cut off", "\x0a\x05a", codes.InvalidArgument},
		{"noise", "\xff\xff\xff\xff", codes.InvalidArgument},
		{"text that is not UTF-8", "\x0a\x01\xff", codes.InvalidArgument},
		{"the mark of what cannot be decoded", string(malformedMark), codes.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := new(wrapperspb.StringValue)
			if err := conn.Invoke(testContext(t), "/test.Probe/Who", []byte(c.sent), out, codec); status.Code(err) != c.want {
				t.Errorf("a call gets %v, want %v", err, c.want)
			}
			if err := conn.Invoke(
				testContext(t),
				"/grpc.health.v1.Health/Check",
				[]byte(c.sent),
				new(emptypb.Empty),
				codec,
			); (status.Code(err) == codes.InvalidArgument) != (c.want == codes.InvalidArgument) {
				t.Errorf("a health check gets %v, want %v", err, c.want)
			}
		})
	}
	for _, sent := range []string{"\xff\xff\xff\xff", string(malformedMark)} {
		s := must(conn.NewStream(testContext(t), &grpc.StreamDesc{ServerStreams: true}, "/test.Probe/Watch", codec))(t)
		s.SendMsg([]byte(sent)) // RecvMsg returns its error
		s.CloseSend()
		if err := s.RecvMsg(new(emptypb.Empty)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a stream gets %v for %q, want INVALID_ARGUMENT", err, sent)
		}
	}
}
