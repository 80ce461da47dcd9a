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

// maxAllowance is how much a slow machine may add to a bound. On a slower one the row fails: to run it again until it
// passes would hide what fails now and then.
const maxAllowance = 2 * time.Second

// allowance is what is added to a bound when timers were late by lag: the components' timers were late, too.
func allowance(lag time.Duration) time.Duration { return min(max(lag, 0), maxAllowance) }

// meters measure the peak of resident memory, and how late timers are. Processes come and go, so they read the memory
// again and again; the kernel remembers the peak in between.
type meters struct {
	env        *env
	once       sync.Once
	done, over chan struct{}

	mu                sync.Mutex
	inventory, writer int // MiB
	maxLag            time.Duration
}

func startMeters(e *env) *meters {
	m := &meters{env: e, done: make(chan struct{}), over: make(chan struct{})}
	for _, component := range e.components() {
		if pid := component.PID(); pid != 0 {
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // forget the peak so far
		}
	}
	go m.run()
	return m
}

func (m *meters) run() {
	defer close(m.over)
	const interval = 20 * time.Millisecond
	for n := 0; ; n++ {
		if n%25 == 0 {
			m.readMemory()
		}
		start := time.Now()
		select {
		case <-time.After(interval):
			m.mu.Lock()
			m.maxLag = max(m.maxLag, time.Since(start)-interval)
			m.mu.Unlock()
		case <-m.done:
			m.readMemory()
			return
		}
	}
}

func (m *meters) readMemory() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, inventory := range []*pair.Component{m.env.Inventory, m.env.replica} {
		m.inventory = max(m.inventory, peakMemory(inventory.PID()))
	}
	for _, writer := range m.env.Writers {
		m.writer = max(m.writer, peakMemory(writer.PID()))
	}
}

// lag is how late a timer was at most so far.
func (m *meters) lag() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.maxLag
}

// stop returns the highest peak of an inventory's process and of a writer's, and the lag.
func (m *meters) stop() (inventoryMiB, writerMiB int, lag time.Duration) {
	m.once.Do(func() { close(m.done) })
	<-m.over
	return m.inventory, m.writer, m.maxLag
}

// peakMemory is that of a process, in MiB; 0: it is gone.
func peakMemory(pid int) int {
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
