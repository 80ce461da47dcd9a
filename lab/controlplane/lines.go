package controlplane

import (
	"bytes"
	"strings"
	"sync"
)

// lineLog keeps what a program has written and counts its lines.
type lineLog struct {
	mu   sync.Mutex
	data []byte
}

// Write implements io.Writer.
func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	return len(p), nil
}

func (l *lineLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.data, []byte("\n"))
}

// tail returns the last lines.
func (l *lineLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(l.data)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
