package propagation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// started is how long an inventory takes from the start of its process to the first synced
// message of a subscriber that waits for it, against what no inventory could do without.
type started struct {
	nodes   int             // that it told
	program []time.Duration // its process alone, which says its version and ends
	listed  []time.Duration // a bare LIST of the Nodes, in pages
	cloud   []time.Duration // the cloud's pages
	synced  []time.Duration
}

// least is what no inventory could do without: both readings.
func (s *started) least() []time.Duration {
	sums := make([]time.Duration, len(s.listed))
	for i := range sums {
		sums[i] = s.listed[i] + s.cloud[i]
	}
	return sums
}

// own is the time since the process was there.
func (s *started) own() []time.Duration {
	rest := make([]time.Duration, len(s.synced))
	for i := range rest {
		rest[i] = s.synced[i] - s.program[i]
	}
	return rest
}

// starts measures them by turns. The writer goes on meanwhile, and the machine is otherwise theirs.
func starts(ctx context.Context, out io.Writer, p *pair.Pair, times int) (*started, error) {
	root, err := pair.Root()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(root, ".bin", "slicefeed-inventory")
	conn, err := dial(p)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // no stream of it is open any more
	nodes, err := pair.FastClient(p.Secured)
	if err != nil {
		return nil, err
	}
	cloud, err := newReader(p.Cloud)
	if err != nil {
		return nil, err
	}
	s := &started{}
	for range times {
		for _, one := range []struct {
			to   *[]time.Duration
			what func(context.Context) error
		}{
			{&s.program, func(ctx context.Context) error { return exec.CommandContext(ctx, program, "version").Run() }},
			{&s.listed, func(ctx context.Context) error { return list(ctx, nodes) }},
			{&s.cloud, cloud.list},
			{&s.synced, func(ctx context.Context) (err error) {
				s.nodes, err = startInventory(ctx, p, conn)
				return err
			}},
		} {
			if err := p.Inventory.Kill(); err != nil {
				return nil, err
			}
			began := time.Now()
			if err := one.what(ctx); err != nil {
				return nil, err
			}
			*one.to = append(*one.to, time.Since(began))
		}
		fmt.Fprintf(out, "an inventory was of use %s after its start\n", s.synced[len(s.synced)-1].Round(time.Millisecond))
	}
	return s, nil
}

// pageSize is how many Nodes the bare LIST asks for at a time, as kubectl does.
const pageSize = 500

func list(ctx context.Context, client *kubernetes.Clientset) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.CoreV1().Nodes().List(ctx, options)
		if err != nil || page.Continue == "" {
			return err
		}
		options.Continue = page.Continue
	}
}

// reader reads the cloud's pages with nothing but the standard library.
type reader struct {
	client *http.Client
	url    string
	token  string
}

func newReader(cloud *pair.Cloud) (*reader, error) {
	pem, err := os.ReadFile(cloud.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &reader{
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}},
		url:    cloud.URL + "/cloudapi/v6/datacenters/" + pair.Datacenter, token: cloud.Token,
	}, nil
}

// list reads all servers with their NICs, and the LAN.
func (r *reader) list(ctx context.Context) error {
	const most = 1000 // that the cloud gives at a time
	for offset := 0; ; offset += most {
		var page struct {
			Items []struct {
				ID         string
				Properties struct{ Name string }
				Entities   struct {
					NICs struct {
						Items []struct {
							Properties struct {
								LAN int
								IPs []string
							}
						}
					}
				}
			}
		}
		if err := r.get(
			ctx,
			fmt.Sprintf("/servers?depth=3&pretty=false&orderBy=name&offset=%d&limit=%d", offset, most),
			&page,
		); err != nil {
			return err
		}
		if len(page.Items) < most {
			break
		}
	}
	var lan struct{ Properties struct{ Name string } }
	return r.get(ctx, fmt.Sprintf("/lans/%d?depth=0&pretty=false", pair.PrivateLAN), &lan)
}

func (r *reader) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// startInventory starts the inventory, and returns how many nodes the first synced message told.
func startInventory(ctx context.Context, p *pair.Pair, conn *grpc.ClientConn) (nodes int, err error) {
	if err := p.Inventory.Launch(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err := inventoryv1.NewInventoryServiceClient(conn).WatchNodes(ctx, &inventoryv1.WatchNodesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return 0, err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return 0, fmt.Errorf("wait for the first synced message: %w", err)
		}
		if m.GetSynced() {
			return int(m.GetCount()), nil
		}
	}
}

// dial makes a connection to the inventory, as an operator's, that is tried without a pause.
func dial(p *pair.Pair) (*grpc.ClientConn, error) {
	leaf, err := tls.LoadX509KeyPair(p.Operator.CertFile, p.Operator.KeyFile)
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("passthrough:%s:%d", p.Inventory.Address, pair.LinkPort)
	return grpc.NewClient(at, grpc.WithNoProxy(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{
			leaf,
		},
		RootCAs:    p.CAs.Inventory.Pool(),
		ServerName: p.Inventory.Name + ".lab.example",
		MinVersion: tls.VersionTLS13,
	})), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: 5 * time.Millisecond}, MinConnectTimeout: time.Second,
	}))
}
