package stream

import (
	"iter"

	"google.golang.org/protobuf/proto"
)

// What a message may carry.
const (
	// PayloadBudget is what upserts and removed keys may take of a message, unless a single upsert takes
	// more: far below the limit of rule R3, since a thousand readers may be told the whole
	// set at once, and each may have a few messages under way. A message is one frame of HTTP/2
	// then, and fits grpc's pooled buffers of 16 KB; one that did not fit those of 32 KB would
	// take a buffer of 1 MB.
	PayloadBudget = 16<<10 - 1<<10

	maxChunkEntries = 500 // upserts, or removed keys (rule R3)
	entryOverhead   = 8   // of one of them: tag and length
)

// Chunk is what one message carries of a change.
type Chunk[W proto.Message] struct {
	First, Last bool
	Removed     []string
	Upserts     []W
}

// Size is how many entries of the change it has.
func (c *Chunk[W]) Size() int { return len(c.Removed) + len(c.Upserts) }

// NextChunk returns what a message carries of a change, after so many entries of it that others
// carry: removed ones first (rule R3).
func NextChunk[E any, W proto.Message](removed []string, upserts []E, offset int, encode func(E) W) Chunk[W] {
	c := Chunk[W]{First: offset == 0}
	upserts = upserts[max(offset-len(removed), 0):]
	removed = removed[min(offset, len(removed)):]
	size, n := 0, 0
	for n < len(removed) && n < maxChunkEntries && (n == 0 || size+len(removed[n])+entryOverhead <= PayloadBudget) {
		size += len(removed[n]) + entryOverhead
		n++
	}
	c.Removed, removed = removed[:n], removed[n:]
	for len(removed) == 0 && len(upserts) > 0 && len(c.Upserts) < maxChunkEntries {
		w := encode(upserts[0])
		more := proto.Size(w) + entryOverhead
		if size+more > PayloadBudget && size > 0 {
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
func Chunks[E any, W proto.Message](removed []string, upserts []E, encode func(E) W) iter.Seq[Chunk[W]] {
	return func(yield func(Chunk[W]) bool) {
		for offset := 0; ; {
			c := NextChunk(removed, upserts, offset, encode)
			if !yield(c) || c.Last {
				return
			}
			offset += c.Size()
		}
	}
}
