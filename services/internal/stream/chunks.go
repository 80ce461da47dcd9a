package stream

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// Limits of one message.
const (
	// PayloadBudget is the size of the upserts and removed keys in a message; only a single upsert
	// may be larger. It is far below the limit of rule R3, because a thousand subscribers may receive
	// the complete set at the same time, with several messages in flight for each. A message of this
	// size is one HTTP/2 frame and fits into the pooled 16 KB buffers of grpc. Above 32 KB, grpc
	// would use a buffer of 1 MB.
	PayloadBudget = 16<<10 - 1<<10

	entryOverhead = 8 // tag and length of an entry
)

// Chunk is the part of a delta that one message carries.
type Chunk[W proto.Message] struct {
	First, Last bool
	Removed     []string
	Upserts     []W
}

// Size is the number of upserts and removed keys.
func (c *Chunk[W]) Size() int { return len(c.Removed) + len(c.Upserts) }

// NextChunk returns the chunk that starts at an offset, counted in entries. Removed keys come before
// upserts (rule R3).
func NextChunk[E any, W proto.Message](removed []string, upserts []E, offset int, encode func(E) W) Chunk[W] {
	c := Chunk[W]{First: offset == 0}
	upserts = upserts[max(offset-len(removed), 0):]
	removed = removed[min(offset, len(removed)):]
	size, n := 0, 0
	for n < len(removed) && n < contract.MaxChunk && (n == 0 || size+len(removed[n])+entryOverhead <= PayloadBudget) {
		size += len(removed[n]) + entryOverhead
		n++
	}
	c.Removed, removed = removed[:n], removed[n:]
	for len(removed) == 0 && len(upserts) > 0 && len(c.Upserts) < contract.MaxChunk {
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

// Chunks splits a delta into at least one chunk. Each chunk is built after the previous one was
// consumed, so that sending a large set to a slow client does not hold an encoded copy of it.
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
