package pair

import (
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// Front starts a proxy in front of the API server that a component uses, and returns it with a kubeconfig for the component
// that leads through it. The caller closes the proxy.
func (p *Pair) Front(component *Component) (proxy *apifault.Proxy, kubeconfig string, err error) {
	cluster, kubeconfig := p.Secured, p.kubeconfig
	if component != p.Inventory {
		cluster, kubeconfig = p.Consuming, component.setting("TARGET_KUBECONFIG")
	}
	admin := cluster.AdminConfig()
	if proxy, err = apifault.Start(apifault.Options{Upstream: admin.Host, UpstreamCA: admin.CAData}); err != nil {
		return nil, "", err
	}
	through, err := detour(kubeconfig, proxy, component.Dir())
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("lead %s through a proxy: %w", component.Name, err), proxy.Close())
	}
	return proxy, through, nil
}

// detour is a kubeconfig with the proxy's address.
func detour(kubeconfig string, proxy *apifault.Proxy, dir string) (string, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = proxy.URL(), proxy.CA()
	}
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "through-proxy.kubeconfig")
	return path, pki.WriteFile(path, raw)
}
