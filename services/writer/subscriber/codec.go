package subscriber

import (
	"errors"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// fieldLimits limits how often the fields of a message may occur. An empty message in a
// repeated field takes two bytes on the wire and a hundred times that in memory, so one message
// within the size limit could take half a gigabyte once it is decoded.
type fieldLimits map[protowire.Number]struct {
	max    int // 0: not counted
	nested fieldLimits
}

// responseLimits has the field numbers of inventory.proto.
var responseLimits = fieldLimits{
	3: {
		max:    contract.MaxChunk,
		nested: fieldLimits{3: {max: 2}, 8: {max: contract.MaxLabels}, 11: {max: contract.MaxPorts}},
	}, // upserts: addresses, labels, ports
	4: {
		max: contract.MaxChunk,
	}, // removed
}

// allow reports whether an encoded message is within the limits. It accepts malformed messages,
// which decoding rejects.
func (f fieldLimits) allow(b []byte) bool {
	seen := make(map[protowire.Number]int, len(f))
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return true
		}
		field := b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, field); n < 0 {
			return true
		}
		b = field[n:]
		rule, counted := f[number]
		if !counted || kind != protowire.BytesType {
			continue
		}
		seen[number]++
		if rule.max > 0 && seen[number] > rule.max {
			return false
		}
		if inner, _ := protowire.ConsumeBytes(field); rule.nested != nil && !rule.nested.allow(inner) {
			return false
		}
	}
	return true
}

var errFieldLimits = errors.New("more upserts, removed names, addresses, labels or ports than the contract allows")

// limitedCodec is gRPC's proto codec, with a check of responseLimits before decoding.
type limitedCodec struct{ encoding.CodecV2 }

func newLimitedCodec() limitedCodec { return limitedCodec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes a response that is within the limits.
func (c limitedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	if !responseLimits.allow(buffer.ReadOnlyData()) {
		return errFieldLimits
	}
	return c.CodecV2.Unmarshal(data, v)
}

// isOversized recognizes the errors for a message above the size limit of gRPC or above responseLimits.
func isOversized(text string) bool {
	return strings.Contains(text, "larger than max") || strings.Contains(text, errFieldLimits.Error())
}
