package prober

import "container/heap"

// indexedHeap is a heap whose items know their place in it, so that each can be moved and removed.
type indexedHeap[T any] struct {
	items  []T
	before func(a, b T) bool
	place  func(T) *int // index + 1; 0: the item is not in the heap
}

// update adds an item, or moves one whose order has changed.
func (h *indexedHeap[T]) update(item T) {
	if place := *h.place(item); place > 0 {
		heap.Fix(h, place-1)
		return
	}
	heap.Push(h, item)
}

// remove removes an item if it is in the heap.
func (h *indexedHeap[T]) remove(item T) {
	if place := *h.place(item); place > 0 {
		heap.Remove(h, place-1)
	}
}

// Len, Less, Swap, Push and Pop are for container/heap alone.
func (h *indexedHeap[T]) Len() int           { return len(h.items) }
func (h *indexedHeap[T]) Less(i, j int) bool { return h.before(h.items[i], h.items[j]) }

func (h *indexedHeap[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.place(h.items[i]), *h.place(h.items[j]) = i+1, j+1
}

func (h *indexedHeap[T]) Push(x any) {
	item := x.(T)
	h.items = append(h.items, item)
	*h.place(item) = len(h.items)
}

func (h *indexedHeap[T]) Pop() any {
	last := len(h.items) - 1
	item := h.items[last]
	clear(h.items[last:])
	h.items = h.items[:last]
	*h.place(item) = 0
	return item
}
