package charts

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slicefeed/slicefeed/lab/netns"
)

const record = `{"name": "%s", "private_ip": "%s", "ready": true, "worker": true}`

// An inventory whose nodes are in a ConfigMap follows it without a restart, by the example's values.
func TestAFileSourceIsInstalled(t *testing.T) {
	s := enter(t)
	const k = "kubectl --context secured -n filed "
	list := func(records ...string) string {
		file := filepath.Join(s.Dir(), "nodes.json")
		s.must(os.WriteFile(file, []byte("["+strings.Join(records, ",")+"]"), 0o600))
		return k + "create configmap nodes --from-file=" + file + " --dry-run=client -o yaml | " + k + "apply -f -\n"
	}
	s.run(k + "create namespace filed\n" + list(fmt.Sprintf(record, "one", "10.0.1.201")) + `
deploy/certificates.sh --inventory-namespace filed all "$DIR/filed" >/dev/null
` + k + `create secret tls slicefeed-inventory-tls --cert="$DIR/filed/inventory/tls.crt" --key="$DIR/filed/inventory/tls.key"
` + k + `create configmap slicefeed-inventory-peer-ca --from-file=ca.crt="$DIR/filed/inventory/peer-ca.crt"
helm --kube-context secured install filed deploy/slicefeed-inventory -n filed -f deploy/slicefeed-inventory/examples/file-source.yaml --set settings.SOURCE_POLL_INTERVAL=1s --wait --timeout 50s`)
	defer s.run(`helm --kube-context secured uninstall filed -n filed --wait; ` + k + `delete namespace filed --wait=false`)
	before := s.run(k + `get pods -o name`)
	const explain = k + "exec deployment/filed -- /slicefeed-inventory explain "
	out := s.run(k + "exec deployment/filed -- /slicefeed-inventory preflight")
	s.wantLines(out, "ok +source +nodes: 1, workers: 1", "ok +first observation")
	s.run(list(fmt.Sprintf(record, "one", "10.0.1.201"), fmt.Sprintf(record, "two", "10.0.1.202")))
	s.until("the new node is published", func() bool {
		out, err := s.Run(s.ctx(), explain+"two")
		return err == nil && strings.Contains(out, "10.0.1.202")
	})
	if after := s.run(k + `get pods -o name`); after != before {
		t.Errorf("Pods were replaced: %s, before: %s", after, before)
	}
}

// listNodes is a command that prints one node, which has the name of the pool.
const listNodes = `#include <stdio.h>
int main(int argc, char **argv) {
	printf("[{\"name\": \"%s-1\", \"private_ip\": \"10.0.1.204\", \"ready\": true, \"worker\": true}]\n", argv[argc - 1]);
	return 0;
}
`

// An inventory runs a command in its container, by the example's values. Here the program is in a volume instead of the
// image: the stand-in for a node knows no other images.
func TestACommandSourceIsInstalled(t *testing.T) {
	s := enter(t)
	const k = "kubectl --context secured -n commanded "
	s.must(os.WriteFile(filepath.Join(s.Dir(), "list-nodes.c"), []byte(listNodes), 0o600))
	s.run(k + `create namespace commanded
gcc -static -Os -s -o "$DIR/list-nodes" "$DIR/list-nodes.c"
` + k + `create configmap commands --from-file="$DIR/list-nodes"
deploy/certificates.sh --inventory-namespace commanded all "$DIR/commanded" >/dev/null
` + k + `create secret tls slicefeed-inventory-tls --cert="$DIR/commanded/inventory/tls.crt" --key="$DIR/commanded/inventory/tls.key"
` + k + `create configmap slicefeed-inventory-peer-ca --from-file=ca.crt="$DIR/commanded/inventory/peer-ca.crt"
helm --kube-context secured install commanded deploy/slicefeed-inventory -n commanded -f deploy/slicefeed-inventory/examples/command-source.yaml \
  --set image.repository=ghcr.io/slicefeed/slicefeed-inventory,extraEnv=null,settings.INVENTORY_COMMAND=/commands/list-nodes \
  --set-json 'extraVolumes=[{"name":"commands","configMap":{"name":"commands","defaultMode":365}}]' \
  --set-json 'extraVolumeMounts=[{"name":"commands","mountPath":"/commands"}]' --wait --timeout 50s`)
	defer s.run(`helm --kube-context secured uninstall commanded -n commanded --wait; ` + k + `delete namespace commanded --wait=false`)
	out := s.run(k + "exec deployment/commanded -- /slicefeed-inventory preflight")
	s.wantLines(out, "ok +source +nodes: 1, workers: 1", "ok +first observation")
	if out := s.run(k + "exec deployment/commanded -- /slicefeed-inventory explain blue-1"); !strings.Contains(out, "10.0.1.204") {
		t.Errorf("the command's node is explained as\n%s", out)
	}
}

// proxy is one that serves CONNECT, and notes what it was asked for.
type proxy struct {
	mu    sync.Mutex
	asked []string
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Host)
	p.mu.Unlock()
	there, err := net.Dial("tcp", r.Host)
	if err != nil || r.Method != http.MethodConnect {
		http.Error(w, fmt.Sprint(r.Method, err), http.StatusBadGateway)
		return
	}
	here, received, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_, _ = here.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	go func() { // ends with either connection
		_, _ = io.Copy(there, received) // what the server has read already is in it
		_ = there.Close()
	}()
	_, _ = io.Copy(here, there)
	_ = here.Close()
}

// The cloud is asked through the proxy of the example, and the API server is not.
func TestTheCloudIsAskedThroughAProxy(t *testing.T) {
	s := enter(t)
	address := netip.MustParseAddr("10.0.0.71")
	s.must(netns.AddAddr(address))
	listener, err := net.Listen("tcp", netip.AddrPortFrom(address, 3128).String())
	s.must(err)
	p := &proxy{}
	server := &http.Server{Handler: p}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	const k = "kubectl --context secured -n proxied "
	s.must(os.WriteFile(filepath.Join(s.Dir(), "token"), []byte(s.Cloud.Token+"\n"), 0o600))
	lab, _ := s.forLab()
	worker := s.worker()
	s.must(worker.Join(s.ctx()))
	s.run(k + `create namespace proxied
deploy/certificates.sh --inventory-namespace proxied all "$DIR/proxied" >/dev/null
` + k + `create secret tls slicefeed-inventory-tls --cert="$DIR/proxied/inventory/tls.crt" --key="$DIR/proxied/inventory/tls.key"
` + k + `create configmap slicefeed-inventory-peer-ca --from-file=ca.crt="$DIR/proxied/inventory/peer-ca.crt"
` + k + `create configmap ionos-ca --from-file=ca.crt=` + s.Cloud.CAFile + `
` + k + `create secret generic slicefeed-inventory-ionos --from-file=token="$DIR/token"
helm --kube-context secured install proxied deploy/slicefeed-inventory -n proxied -f deploy/slicefeed-inventory/examples/https-proxy.yaml` + lab + ` \
  --set extraEnv[0].value=http://10.0.0.71:3128 --set extraEnv[1].value=` + s.Secured.Endpoint().Addr().String() + ` --wait --timeout 50s`)
	defer s.run(`helm --kube-context secured uninstall proxied -n proxied --wait; ` + k + `delete namespace proxied --wait=false`)
	s.wantLines(
		s.run(k+"exec deployment/proxied -- /slicefeed-inventory preflight"),
		"ok +IONOS token +accepted",
		"ok +list nodes +allowed",
	)
	s.must(worker.Leave(s.ctx()))
	p.mu.Lock()
	defer p.mu.Unlock()
	cloud := strings.TrimPrefix(s.Cloud.URL, "https://")
	if asked := slices.Compact(slices.Sorted(slices.Values(p.asked))); len(asked) != 1 || !strings.HasPrefix(cloud, asked[0]) {
		t.Errorf("the proxy was asked for %q, want only %s", asked, cloud)
	}
}
