package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// Job sets up one side. Its directories below Root are volumes of that side:
//
//	cluster/  keys of the API server
//	etcd/     keys of its store
//	cloud/    keys, token and content of the cloud (secured side)
//	component/ what this side's component of Slicefeed gets, laid out as in a Pod
//	people/   what a person of this side works with
//	public/   the certificate of the CA that signs for the link, for the other side; nothing else
type Job struct {
	Root      string // of the directories
	Manifests string // directory of RBAC and policy
	// PublishedPort is where the machine publishes the API server, on 127.0.0.1: people's
	// kubeconfig leads there.
	PublishedPort string
	Log           *slog.Logger
}

// complete is a file that each directory has once all of its files exist: what needs them waits for it.
const complete = "complete"

// tokenLife is longer than anyone leaves the stack up. Each `make up` issues a new one.
const tokenLife = 90 * 24 * time.Hour

const apiPort = "6443"

// side is what differs between the two.
type side struct {
	name string // also of the context in kubeconfigs
	dirs []string
	// keys makes what is not the control plane's, with the CA for the link.
	keys func(link *pki.CA) error
	// manifests are applied as they are, before furnish.
	manifests []string
	account   struct{ namespace, name string } // of the component
	furnish   func(ctx context.Context, client kubernetes.Interface) error
}

// run makes keys, unless they are there, waits for the API server that starts with them, and
// gives the component its credential. All of it can be repeated.
func (j Job) run(ctx context.Context, s side) error {
	if _, err := os.Stat(j.path("cluster", complete)); errors.Is(err, os.ErrNotExist) {
		if err := j.makeKeys(s); err != nil {
			return fmt.Errorf("make the keys of the %s side: %w", s.name, err)
		}
		j.Log.Info("keys and certificates are made", "side", s.name)
	} else if err != nil {
		return err
	}
	admin, err := j.admin(s)
	if err != nil {
		return err
	}
	if err := j.awaitAPI(ctx, admin); err != nil {
		return fmt.Errorf("wait for the API server of the %s side: %w", s.name, err)
	}
	for _, name := range s.manifests {
		documents, err := os.ReadFile(filepath.Join(j.Manifests, name))
		if err != nil {
			return fmt.Errorf("read a manifest: %w", err)
		}
		if err := controlplane.ApplyTo(ctx, admin, documents); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		j.Log.Info("applied", "manifest", name)
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	if err := s.furnish(ctx, client); err != nil {
		return err
	}
	return j.writeCredential(ctx, s, client)
}

// makeKeys has three CAs, none of which signs for what is another's: one for the API server's
// clients, one for etcd's, one for the link. Their keys are never written.
func (j Job) makeKeys(s side) error {
	for _, dir := range append([]string{"cluster", "etcd", "component", "people", "public"}, s.dirs...) {
		if err := os.MkdirAll(j.path(dir), 0o700); err != nil {
			return err
		}
	}
	cluster, err := pki.NewCA(s.name + " cluster")
	if err != nil {
		return err
	}
	store, err := pki.NewCA(s.name + " etcd")
	if err != nil {
		return err
	}
	link, err := pki.NewCA(s.name + " side of the link")
	if err != nil {
		return err
	}
	here := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	files := []struct {
		ca        *pki.CA
		dir, name string
		cert      pki.Cert
	}{
		{
			cluster,
			"cluster",
			"server",
			pki.Cert{CommonName: "kube-apiserver", Usage: pki.Server, IPs: here, DNS: []string{s.name + "-api", "kubernetes.default.svc"}},
		},
		{cluster, "cluster", "accounts", pki.Cert{CommonName: "service-accounts"}}, // only its key pair counts
		{cluster, "people", "admin", pki.Cert{CommonName: "admin", Organization: []string{"system:masters"}, Usage: pki.Client}},
		{store, "cluster", "etcd", pki.Cert{CommonName: "kube-apiserver", Usage: pki.Client}},
		{store, "etcd", "server", pki.Cert{CommonName: "etcd", Usage: pki.Client | pki.Server, DNS: []string{s.name + "-etcd"}, IPs: here}},
	}
	for _, f := range files {
		if err := issue(f.ca, f.cert, j.path(f.dir), f.name); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		ca        *pki.CA
		dir, name string
	}{{cluster, "cluster", "ca"}, {cluster, "people", "cluster-ca"}, {store, "cluster", "etcd-ca"}, {store, "etcd", "ca"}, {link, "public", "ca"}} {
		if _, err := f.ca.Write(j.path(f.dir), f.name); err != nil {
			return err
		}
	}
	if err := s.keys(link); err != nil {
		return err
	}
	// cluster is last: by it the job knows that nothing has to be made again.
	for _, dir := range append(s.dirs, "etcd", "cluster") {
		if err := pki.WriteFile(j.path(dir, complete), nil); err != nil {
			return err
		}
	}
	return nil
}

// admin is a configuration for the job itself, and writes that for people.
func (j Job) admin(s side) (*rest.Config, error) {
	files := map[string][]byte{}
	for _, name := range []string{"admin.crt", "admin.key", "cluster-ca.crt"} {
		raw, err := os.ReadFile(j.path("people", name))
		if err != nil {
			return nil, err
		}
		files[name] = raw
	}
	user := &clientcmdapi.AuthInfo{ClientCertificateData: files["admin.crt"], ClientKeyData: files["admin.key"]}
	people := kubeconfig(s.name, "https://127.0.0.1:"+j.PublishedPort, "default", files["cluster-ca.crt"], user)
	if err := write(people, j.path("people", "kubeconfig")); err != nil {
		return nil, err
	}
	own := kubeconfig(s.name, j.server(s), "default", files["cluster-ca.crt"], user)
	return clientcmd.NewDefaultClientConfig(*own, nil).ClientConfig()
}

func (j Job) server(s side) string { return "https://" + s.name + "-api:" + apiPort }

// writeCredential writes a kubeconfig with the rights of the component's account.
func (j Job) writeCredential(ctx context.Context, s side, client kubernetes.Interface) error {
	seconds := int64(tokenLife.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	issued, err := client.CoreV1().ServiceAccounts(s.account.namespace).CreateToken(ctx, s.account.name, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token of service account %s/%s: %w", s.account.namespace, s.account.name, err)
	}
	ca, err := os.ReadFile(j.path("cluster", "ca.crt"))
	if err != nil {
		return err
	}
	config := kubeconfig(s.name, j.server(s), s.account.namespace, ca, &clientcmdapi.AuthInfo{Token: issued.Status.Token})
	if err := write(config, j.path("component", "kubeconfig")); err != nil {
		return err
	}
	j.Log.Info("credential written", "account", s.account.namespace+"/"+s.account.name)
	return nil
}

// awaitAPI polls, because a server that starts does not report it.
func (j Job) awaitAPI(ctx context.Context, admin *rest.Config) error {
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return await(ctx, 3*time.Minute, func(ctx context.Context) error {
		for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
			if err := Answers(ctx, client, admin.Host+path); err != nil {
				return err
			}
		}
		return nil
	})
}

// await calls a function every 100 ms until there is no error, and returns the last one.
func await(ctx context.Context, within time.Duration, ask func(context.Context) error) error {
	last := errors.New("it was never called")
	ended := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		err := ask(ctx)
		if ctx.Err() == nil { // that our time is up says nothing about what is waited for
			last = err
		}
		return err == nil, nil
	})
	if ended != nil {
		return errors.Join(last, ended)
	}
	return nil
}

// Answers returns nil if a URL answers with 200.
func Answers(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

func (j Job) path(parts ...string) string {
	return filepath.Join(append([]string{j.Root}, parts...)...)
}

func issue(ca *pki.CA, cert pki.Cert, dir, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	pair, err := ca.Issue(cert)
	if err != nil {
		return err
	}
	_, _, err = pair.Write(dir, name)
	return err
}

func kubeconfig(name, server, namespace string, ca []byte, user *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	return config
}

func write(config *clientcmdapi.Config, path string) error {
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return pki.WriteFile(path, raw)
}
