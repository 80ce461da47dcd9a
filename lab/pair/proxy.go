package pair

import (
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// FrontSecured starts a proxy in front of the secured cluster's API server, and returns it
// with a kubeconfig for the inventory that leads through it: a value for SECURED_KUBECONFIG.
// The caller closes the proxy.
func (p *Pair) FrontSecured() (proxy *apifault.Proxy, kubeconfig string, err error) {
	admin := p.Secured.AdminConfig()
	proxy, err = apifault.Start(apifault.Options{Upstream: admin.Host, UpstreamCA: admin.CAData})
	if err != nil {
		return nil, "", err
	}
	kubeconfig, err = p.detour(proxy)
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("lead the inventory through a proxy: %w", err), proxy.Close())
	}
	return proxy, kubeconfig, nil
}

// detour is the kubeconfig that the set-up gave to the inventory, with the proxy's address.
func (p *Pair) detour(proxy *apifault.Proxy) (string, error) {
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
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
	path := filepath.Join(p.Inventory.dir, "through-proxy.kubeconfig")
	return path, pki.WriteFile(path, raw)
}
