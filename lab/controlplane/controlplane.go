// Package controlplane runs real Kubernetes control planes, each an etcd and a
// kube-apiserver, built from their Go modules. It promises RBAC as in production, any
// number of them side by side, each on an address of its own, and outages on demand; it
// refuses to run controllers, schedulers or nodes, and to keep data when it stops.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pki"
	"github.com/slicefeed/slicefeed/lab/process"
)

// The fixed ports: each control plane has an address of its own.
const (
	apiPort      = 6443
	etcdPort     = 2379
	etcdPeerPort = 2380
)

const readyTimeout = 5 * time.Minute // an idle machine needs 3 s; one with a load of 30 was seen to need 160

// Program names one of the two processes of a control plane.
type Program string

// The processes of a control plane.
const (
	Etcd      Program = "etcd"
	APIServer Program = "kube-apiserver"
)

// Options describe a control plane.
type Options struct {
	Programs Programs   // as Build returns them
	Name     string     // of the context in its kubeconfigs, and in messages; default "lab"
	Address  netip.Addr // must be an address of this machine, not a loopback one (see netns)
	Dir      string     // for data, keys and logs; empty: a temporary one, removed by Stop
	// ServiceCIDRs is where ClusterIPs come from, one CIDR per family, the first one of
	// Address's family. Default: 10.96.0.0/16 and fd00:10:96::/112.
	ServiceCIDRs []netip.Prefix
	APIServerArg []string // further arguments, e.g. --enable-admission-plugins=…
	// Accounts has the API server give each Pod its service account's token, as in production:
	// a Pod whose account does not exist is refused then. Without a controller manager no
	// namespace gets its default account, so this is off unless it is asked for.
	Accounts bool
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	name    string
	dir     string
	ownDir  bool
	options Options
	files   files
	admin   *rest.Config
	adminKC string

	mu        sync.Mutex
	processes map[Program]*process.Process
	changed   map[Program]time.Time // when it was last started or killed
	applier   *applier              // made at first use
}

// files are the paths of the keys and certificates.
type files struct {
	ca, serverCert, serverKey, accountsCert, accountsKey, kubeletCert, kubeletKey string

	caPEM []byte
}

// Start starts a control plane and returns when it answers. It ends with this process,
// if not with Stop before. When it fails, the directory with the logs stays.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Name == "" {
		options.Name = "lab"
	}
	if len(options.ServiceCIDRs) == 0 {
		options.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
	}
	if options.Address.IsLoopback() || !options.Address.IsValid() {
		return nil, fmt.Errorf("start control plane %s: address %s: a kube-apiserver does not advertise it", options.Name, options.Address)
	}
	cp := &ControlPlane{
		name:      options.Name,
		options:   options,
		dir:       options.Dir,
		processes: map[Program]*process.Process{},
		changed:   map[Program]time.Time{},
	}
	if err := cp.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare control plane %s: %w", cp.name, err), cp.Stop())
	}
	if err := cp.start(ctx); err != nil {
		cp.ownDir = false // the message points to the logs in it
		return nil, errors.Join(fmt.Errorf("start control plane %s: %w", cp.name, err), cp.Stop())
	}
	return cp, nil
}

// Main is the body of a TestMain whose tests start control planes: it builds the
// programs while there is a network, then enters a namespace with the given addresses.
func Main(m interface{ Run() int }, addrs ...netip.Addr) {
	if !netns.Inside() {
		if _, err := Build(context.Background(), os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	netns.Main(m, addrs...)
}

func (cp *ControlPlane) prepare() (err error) {
	if cp.dir == "" {
		if cp.dir, err = os.MkdirTemp("", "slicefeed-"+cp.name+"-"); err != nil {
			return err
		}
		cp.ownDir = true
	}
	if err := os.MkdirAll(cp.dir, 0o700); err != nil {
		return err
	}
	ca, err := pki.NewCA(cp.name)
	if err != nil {
		return err
	}
	cp.files.caPEM = ca.PEM()
	if cp.files.ca, err = ca.Write(cp.dir, "ca"); err != nil {
		return err
	}
	addresses := []netip.Addr{cp.options.Address}
	for _, services := range cp.options.ServiceCIDRs {
		addresses = append(addresses, services.Masked().Addr().Next()) // of the Service kubernetes
	}
	server, err := ca.Issue(pki.Cert{
		CommonName: "kube-apiserver", Usage: pki.Server, IPs: addresses,
		DNS: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	})
	if err != nil {
		return err
	}
	if cp.files.serverCert, cp.files.serverKey, err = server.Write(cp.dir, "server"); err != nil {
		return err
	}
	accounts, err := ca.Issue(pki.Cert{CommonName: "service-accounts"}) // only its key pair counts
	if err != nil {
		return err
	}
	if cp.files.accountsCert, cp.files.accountsKey, err = accounts.Write(cp.dir, "accounts"); err != nil {
		return err
	}
	kubelet, err := ca.Issue(pki.Cert{CommonName: "kube-apiserver-kubelet-client", Usage: pki.Client}) // see lab/node
	if err != nil {
		return err
	}
	if cp.files.kubeletCert, cp.files.kubeletKey, err = kubelet.Write(cp.dir, "kubelet-client"); err != nil {
		return err
	}
	admin, err := ca.Issue(pki.Cert{CommonName: "admin", Organization: []string{"system:masters"}, Usage: pki.Client})
	if err != nil {
		return err
	}
	cp.admin = &rest.Config{
		Host:            cp.url(),
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.files.caPEM, CertData: admin.CertPEM, KeyData: admin.KeyPEM},
		QPS:             -1, // no limit of the client's own
	}
	cp.adminKC, err = cp.writeKubeconfig("admin", "default", credential{certPEM: admin.CertPEM, keyPEM: admin.KeyPEM})
	return err
}

func (cp *ControlPlane) start(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if err := cp.launch(Etcd, cp.options.Programs.Etcd, cp.etcdArgs()); err != nil {
		return err
	}
	// etcd need not be ready first: the API server tries until it is.
	return cp.startAPIServer(ctx)
}

// startAPIServer needs mu.
func (cp *ControlPlane) startAPIServer(ctx context.Context) error {
	if err := cp.launch(APIServer, cp.options.Programs.KubeAPIServer, cp.apiServerArgs()); err != nil {
		return err
	}
	return cp.waitReady(ctx)
}

// launch needs mu.
func (cp *ControlPlane) launch(program Program, path string, args []string) error {
	begun := time.Now()
	p, err := process.Start(process.Spec{
		Name: cp.name + "'s " + string(program), Path: path, Args: args, Dir: cp.dir,
		Log: filepath.Join(cp.dir, string(program)+".log"),
	})
	if err != nil {
		return err
	}
	cp.processes[program], cp.changed[program] = p, begun
	return nil
}

func (cp *ControlPlane) etcdArgs() []string {
	client, peer := cp.etcdURL(etcdPort), cp.etcdURL(etcdPeerPort)
	return []string{
		"--name=lab",
		"--data-dir=" + filepath.Join(cp.dir, "etcd"),
		"--unsafe-no-fsync", // a power cut may cost the data; it is thrown away anyhow
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
		"--heartbeat-interval=20", "--election-timeout=200", // alone, it has no one to wait for
		"--log-level=warn",
	}
}

func (cp *ControlPlane) apiServerArgs() []string {
	var cidrs []string
	for _, cidr := range cp.options.ServiceCIDRs {
		cidrs = append(cidrs, cidr.String())
	}
	args := []string{
		"--etcd-servers=" + cp.etcdURL(etcdPort),
		"--bind-address=" + cp.options.Address.String(),
		"--advertise-address=" + cp.options.Address.String(), // it finds none by itself where only lo exists
		fmt.Sprintf("--secure-port=%d", apiPort),
		"--tls-cert-file=" + cp.files.serverCert, "--tls-private-key-file=" + cp.files.serverKey,
		"--client-ca-file=" + cp.files.ca,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.files.accountsCert,
		"--service-account-signing-key-file=" + cp.files.accountsKey,
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=" + strings.Join(cidrs, ","),
		"--kubelet-client-certificate=" + cp.files.kubeletCert, "--kubelet-client-key=" + cp.files.kubeletKey,
		"--kubelet-preferred-address-types=InternalIP",
		"--profiling=false",
	}
	if !cp.options.Accounts {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return append(args, cp.options.APIServerArg...)
}

// Name returns the control plane's name, which is also that of the context in its
// kubeconfigs.
func (cp *ControlPlane) Name() string { return cp.name }

// Dir returns the directory with its logs, keys and kubeconfigs.
func (cp *ControlPlane) Dir() string { return cp.dir }

// AdminConfig returns a client configuration that may do everything. It is the caller's
// own copy.
func (cp *ControlPlane) AdminConfig() *rest.Config { return rest.CopyConfig(cp.admin) }

// AdminKubeconfig returns the path of a kubeconfig that may do everything.
func (cp *ControlPlane) AdminKubeconfig() string { return cp.adminKC }

// Endpoint is where the API server listens.
func (cp *ControlPlane) Endpoint() netip.AddrPort {
	return netip.AddrPortFrom(cp.options.Address, apiPort)
}

func (cp *ControlPlane) url() string { return "https://" + cp.Endpoint().String() }

func (cp *ControlPlane) etcdURL(port uint16) string {
	return "http://" + netip.AddrPortFrom(cp.options.Address, port).String()
}
