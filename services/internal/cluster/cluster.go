// Package cluster is how a component reaches its cluster's API server, and what its requests cost. It guarantees that
// metrics have bounded labels and one count per request that was sent, that a request which brings nothing ends, and
// that a watch never replaces a state by an older one.
package cluster

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// namespaceFile has the namespace of the Pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Load returns how to connect to the API server that a kubeconfig names, and the namespace of its context; without a
// kubeconfig, those of the Pod. A credential plugin must be a child of NewPluginCommand. Its error names the setting of the kubeconfig.
func Load(userAgent, setting, kubeconfig, context string) (config *rest.Config, namespace string, err error) {
	if kubeconfig == "" && context == "" {
		if config, err = rest.InClusterConfig(); err == nil {
			var text []byte
			text, err = os.ReadFile(namespaceFile)
			namespace = strings.TrimSpace(string(text))
		}
	} else {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: context})
		if config, err = loader.ClientConfig(); err == nil {
			namespace, _, err = loader.Namespace()
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s=%q: want a kubeconfig, or a Pod with a ServiceAccount: %w", setting, kubeconfig, err)
	}
	limitPlugin(config)
	config.UserAgent = userAgent
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS = -1 // no client-side limit: the API server protects itself, and a failover must not queue here
	return config, namespace, nil
}
