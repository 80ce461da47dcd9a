package stream

import (
	"iter"

	"google.golang.org/protobuf/proto"
)

// What a message may carry.
const (
	// Budget is what upserts and removed keys may take of a message, unless a single upsert takes
	// more: far below the limit of rule R3, since a thousand readers may be told the whole
	// set at once, and each may have a few messages under way. A message is one frame of HTTP/2
	// then, and fits grpc's pooled buffers of 16 KB; one that did not fit those of 32 KB would
	// take a buffer of 1 MB.
	Budget = 16<<10 - 1<<10

	maxChunk = 500 // upserts, or removed keys (rule R3)
	framing  = 8   // of one of them: tag and length
)

// Chunk is what one message carries of a change.
type Chunk[W proto.Message] struct {
	First, Last bool
	Removed     []string
	Upserts     []W
}

// Size is how many entries of the change it has.
func (c *Chunk[W]) Size() int { return len(c.Removed) + len(c.Upserts) }

// Cut returns what a message carries of a change, after so many entries of it that others
// carry: removed ones first (rule R3).
func Cut[E any, W proto.Message](removed []string, upserts []E, after int, wire func(E) W) Chunk[W] {
	c := Chunk[W]{First: after == 0}
	upserts = upserts[max(after-len(removed), 0):]
	removed = removed[min(after, len(removed)):]
	size, n := 0, 0
	for n < len(removed) && n < maxChunk && (n == 0 || size+len(removed[n])+framing <= Budget) {
		size += len(removed[n]) + framing
		n++
	}
	c.Removed, removed = removed[:n], removed[n:]
	for len(removed) == 0 && len(upserts) > 0 && len(c.Upserts) < maxChunk {
		w := wire(upserts[0])
		more := proto.Size(w) + framing
		if size+more > Budget && size > 0 {
			break
		}
		size += more
		c.Upserts, upserts = append(c.Upserts, w), upserts[1:]
	}
	c.Last = len(removed)+len(upserts) == 0
	return c
}

// Chunks cuts a change into what messages carry: one at least. Each is made when the
// one before has been taken, so that a slow reader of a large set does not hold it twice.
func Chunks[E any, W proto.Message](removed []string, upserts []E, wire func(E) W) iter.Seq[Chunk[W]] {
	return func(yield func(Chunk[W]) bool) {
		for after := 0; ; {
			c := Cut(removed, upserts, after, wire)
			if !yield(c) || c.Last {
				return
			}
			after += c.Size()
		}
	}
}
