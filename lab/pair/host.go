package pair

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/slicefeed/slicefeed/lab/netns"
)

// Settle has the component run on a machine of its own from the next start on: its network can
// then be cut, and an API server's audit log tells it by its address. Its owner calls leave
// when the component has ended, or is about to be killed.
func (h *Component) Settle() (host *netns.Host, leave func() error, err error) {
	if h.Running() {
		return nil, nil, fmt.Errorf("settle %s on a host: it runs", h.Name)
	}
	if host, err = netns.NewHost(h.Address); err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// A script, since a component is started as one program with one argument.
	home, script := h.program, filepath.Join(h.dir, "on-its-host")
	text := "#!/bin/sh\nexec " + strings.Join(host.Command(home), " ") + ` "$@"` + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("settle %s on a host: %w", h.Name, err), host.Close())
	}
	h.program = script
	return host, func() error {
		h.mu.Lock()
		h.program = home
		h.mu.Unlock()
		return host.Close()
	}, nil
}
