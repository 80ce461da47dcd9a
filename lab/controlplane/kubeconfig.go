package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// tokenLife is longer than any demo that is left up.
const tokenLife = 24 * time.Hour

type credential struct {
	certPEM, keyPEM []byte
	token           string
}

// ServiceAccountKubeconfig writes a kubeconfig that acts as a service account, with the
// rights that RBAC gives it and no more. Its context bears the control plane's name and
// the account's namespace. The account must exist.
func (cp *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	client, err := kubernetes.NewForConfig(cp.admin)
	if err != nil {
		return "", fmt.Errorf("token of service account %s/%s: %w", namespace, name, err)
	}
	seconds := int64(tokenLife.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	issued, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of service account %s/%s: %w", namespace, name, err)
	}
	return cp.writeKubeconfig(namespace+"."+name, namespace, credential{token: issued.Status.Token})
}

func (cp *ControlPlane) writeKubeconfig(user, namespace string, c credential) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[cp.name] = &clientcmdapi.Cluster{Server: cp.url(), CertificateAuthorityData: cp.files.caPEM}
	// The user's name bears the cluster's, so that several files can be merged in KUBECONFIG.
	userName := cp.name + "-" + user
	config.AuthInfos[userName] = &clientcmdapi.AuthInfo{ClientCertificateData: c.certPEM, ClientKeyData: c.keyPEM, Token: c.token}
	config.Contexts[cp.name] = &clientcmdapi.Context{Cluster: cp.name, AuthInfo: userName, Namespace: namespace}
	config.CurrentContext = cp.name
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("encode kubeconfig of %s: %w", user, err)
	}
	path := filepath.Join(cp.dir, user+".kubeconfig")
	return path, pki.WriteFile(path, raw)
}
