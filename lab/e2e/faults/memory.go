package faults

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// memory watches the peak of the halves' resident memory. Processes come and go, so it looks again
// and again; the kernel remembers the peak in between.
type memory struct {
	done, over chan struct{}

	mu                sync.Mutex
	inventory, writer int // MiB
}

func measure(s *Scene) *memory {
	m := &memory{done: make(chan struct{}), over: make(chan struct{})}
	for _, half := range s.Halves() {
		if pid := half.PID(); pid != 0 {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // forget the peak so far
		}
	}
	go func() { // stop waits for it
		defer close(m.over)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			m.look(s)
			select {
			case <-tick.C:
			case <-m.done:
				m.look(s)
				return
			}
		}
	}()
	return m
}

func (m *memory) look(s *Scene) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, half := range []*pair.Half{s.Inventory, s.Replica} {
		m.inventory = max(m.inventory, peak(half.PID()))
	}
	for _, writer := range s.Writers {
		m.writer = max(m.writer, peak(writer.PID()))
	}
}

// stop returns the highest peak of an inventory's process and of a writer's, in MiB.
func (m *memory) stop() (inventory, writer int) {
	close(m.done)
	<-m.over
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inventory, m.writer
}

// peak is a process's, in MiB; 0: it has gone.
func peak(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			return kib >> 10
		}
	}
	return 0
}
