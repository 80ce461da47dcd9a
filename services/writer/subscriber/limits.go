package subscriber

import (
	"errors"
	"strings"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// What a peer can make us hold, in one set: while one is staged beside the one in force, twice
// that. The largest clusters known have a tenth of the nodes.
const (
	maxNodes     = 100_000
	maxSetMemory = 64 << 20

	memberOverhead = 400 // bytes that a member takes besides its texts, with all indexes that it is in
	labelOverhead  = 64  // that a label takes besides its texts

	maxLogRate  = 1 // a second, of the log
	maxLogBurst = 20
)

// memoryCost is about how many bytes the member takes here.
func (m *Member) memoryCost() int {
	sum := memberOverhead + len(m.Name) + len(m.UID) + len(m.Zone) + len(m.Region)
	for key, value := range m.Labels {
		sum += labelOverhead + len(key) + len(value)
	}
	return sum
}

// fieldLimits says how often the fields of a message may occur, of those where it matters: an empty
// message in a repeated field takes two bytes on the wire and a hundred times that in memory, so
// that one message of a legal size could take half a gigabyte before anyone looks at it.
type fieldLimits map[protowire.Number]struct {
	most   int // 0: it is not counted
	within fieldLimits
}

// Numbers of fields are those of inventory.proto.
var responseLimits = fieldLimits{
	3: {most: inventoryv1.MaxChunk, within: fieldLimits{3: {most: 2}, 8: {most: inventoryv1.MaxLabels}}}, // upserts: addresses, labels
	4: {most: inventoryv1.MaxChunk},                                                                      // removed
	6: {within: fieldLimits{5: {most: inventoryv1.MaxSourcePorts}}},                                      // status: ports
}

// allow reports whether a message keeps to the form. What is no message at all is for others to find.
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
		if rule.most > 0 && seen[number] > rule.most {
			return false
		}
		if inner, _ := protowire.ConsumeBytes(field); rule.within != nil && !rule.within.allow(inner) {
			return false
		}
	}
	return true
}

var errFieldLimits = errors.New("more upserts, removed names, addresses, labels or ports than the contract allows")

// limitedCodec is gRPC's own codec, which counts before it decodes.
type limitedCodec struct{ encoding.CodecV2 }

func newLimitedCodec() limitedCodec { return limitedCodec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes an answer.
func (c limitedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	if !responseLimits.allow(buffer.ReadOnlyData()) {
		return errFieldLimits
	}
	return c.CodecV2.Unmarshal(data, v)
}

// isOversized recognises what grpc says of a message above the limit of the connection, or above ours.
func isOversized(text string) bool {
	return strings.Contains(text, "larger than max") || strings.Contains(text, errFieldLimits.Error())
}
