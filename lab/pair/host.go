package pair

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair/holdup"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// Settle has the half run on a machine of its own from the next start on: its network can
// then be cut, and an API server's audit log tells it by its address. Its owner calls leave
// when the half has ended, or is about to be killed.
func (h *Half) Settle() (host *netns.Host, leave func() error, err error) {
	if h.Running() {
		return nil, nil, fmt.Errorf("settle %s on a host: it runs", h.Name)
	}
	if host, err = netns.NewHost(h.Address); err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// A script, since a half is started as one program with one argument.
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

// HoldUp starts a proxy in front of the consuming cluster's API server that can keep a write
// back, and returns it with a kubeconfig that leads a writer through it: a value for
// TARGET_KUBECONFIG. The caller closes the proxy.
func (p *Pair) HoldUp(writer *Half) (proxy *holdup.Proxy, kubeconfig string, err error) {
	admin := p.Consuming.AdminConfig()
	proxy, err = holdup.Start(holdup.Options{Upstream: admin.Host, UpstreamCA: admin.CAData, Listen: ConsumingAddress})
	if err != nil {
		return nil, "", err
	}
	kubeconfig = filepath.Join(writer.dir, "through-holdup.kubeconfig")
	if err := writer.lead(proxy, kubeconfig); err != nil {
		return nil, "", errors.Join(fmt.Errorf("lead %s through a proxy: %w", writer.Name, err), proxy.Close())
	}
	return proxy, kubeconfig, nil
}

// lead writes the half's kubeconfig with the proxy's address.
func (h *Half) lead(proxy *holdup.Proxy, path string) error {
	h.mu.Lock()
	direct := h.env["TARGET_KUBECONFIG"]
	h.mu.Unlock()
	config, err := clientcmd.LoadFromFile(direct)
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = proxy.URL(), proxy.CA()
	}
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return pki.WriteFile(path, raw)
}
