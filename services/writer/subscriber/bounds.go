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
	maxMembers = 100_000
	maxWeight  = 64 << 20

	memberWeight = 400 // bytes that a member takes besides its texts, with all indexes that it is in
	labelWeight  = 64  // that a label takes besides its texts

	linesPace  = 1 // a second, of the log
	linesBurst = 20
)

// weight is about how many bytes the member takes here.
func (m *Member) weight() int {
	sum := memberWeight + len(m.Name) + len(m.UID) + len(m.Zone) + len(m.Region)
	for key, value := range m.Labels {
		sum += labelWeight + len(key) + len(value)
	}
	return sum
}

// form says how often the fields of a message may occur, of those where it matters: an empty
// message in a repeated field takes two bytes on the wire and a hundred times that in memory, so
// that one message of a legal size could take half a gigabyte before anyone looks at it.
type form map[protowire.Number]struct {
	most   int // 0: it is not counted
	within form
}

// Numbers of fields are those of inventory.proto.
var answer = form{
	3: {most: inventoryv1.MaxChunk, within: form{3: {most: 2}, 8: {most: inventoryv1.MaxLabels}}}, // upserts: addresses, labels
	4: {most: inventoryv1.MaxChunk},                                                               // removed
	6: {within: form{5: {most: inventoryv1.MaxSourcePorts}}},                                      // status: ports
}

// fits reports whether a message keeps to the form. What is no message at all is for others to find.
func (f form) fits(b []byte) bool {
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
		if inner, _ := protowire.ConsumeBytes(field); rule.within != nil && !rule.within.fits(inner) {
			return false
		}
	}
	return true
}

var errForm = errors.New("more upserts, removed names, addresses, labels or ports than the contract allows")

// careful is gRPC's own codec, which counts before it decodes.
type careful struct{ encoding.CodecV2 }

func newCareful() careful { return careful{encoding.GetCodecV2("proto")} }

// Unmarshal decodes an answer.
func (c careful) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	if !answer.fits(buffer.ReadOnlyData()) {
		return errForm
	}
	return c.CodecV2.Unmarshal(data, v)
}

// oversized recognises what grpc says of a message above the limit of the connection, or above ours.
func oversized(text string) bool {
	return strings.Contains(text, "larger than max") || strings.Contains(text, errForm.Error())
}
