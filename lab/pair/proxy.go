package pair

import (
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// FrontSecured starts a proxy in front of the secured cluster's API server, and returns it
// with a kubeconfig for the inventory that leads through it: a value for SECURED_KUBECONFIG.
// The caller closes the proxy.
func (p *Pair) FrontSecured() (proxy *apifault.Proxy, kubeconfig string, err error) {
	return front(p.Secured, p.kubeconfig, p.Inventory)
}

// FrontConsuming does the same for the consuming cluster and a writer: a value for its
// TARGET_KUBECONFIG.
func (p *Pair) FrontConsuming(writer *Component) (proxy *apifault.Proxy, kubeconfig string, err error) {
	return front(p.Consuming, writer.setting("TARGET_KUBECONFIG"), writer)
}

func front(cluster *controlplane.ControlPlane, kubeconfig string, component *Component) (*apifault.Proxy, string, error) {
	admin := cluster.AdminConfig()
	proxy, err := apifault.Start(apifault.Options{Upstream: admin.Host, UpstreamCA: admin.CAData})
	if err != nil {
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
