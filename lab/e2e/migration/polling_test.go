package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// controller stands in for the controller that people migrate from: one process with the credentials of both clusters and of
// the cloud, which polls, and writes one EndpointSlice with kubectl apply. Any error is one poll without a write. Its fields
// are mandatory.
type controller struct {
	Env     map[string]string // its settings, as readEnv reads them
	Kubectl string            // the program
	HTTP    *http.Client      // that trusts the cloud
	Log     io.Writer

	port  string // name of the Service's port
	empty int    // polls in a row that found nothing
}

// readEnv reads a file of NAME=value lines; empty ones and comments do not count.
func readEnv(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("%s: %q is no NAME=value", file, line)
		}
		env[name] = value
	}
	return env, nil
}

// run polls until ctx is done.
func (c *controller) run(ctx context.Context) error {
	pause, err := time.ParseDuration(c.Env["SOURCE_POLL_INTERVAL"])
	if err != nil {
		return fmt.Errorf("SOURCE_POLL_INTERVAL: %w", err)
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if err := c.poll(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(c.Log, "this poll came to nothing: %v\n", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *controller) poll(ctx context.Context) error {
	var service corev1.Service
	if c.port == "" {
		if err := c.get(
			ctx,
			c.consuming(),
			&service,
			"-n",
			c.Env["TARGET_NAMESPACE"],
			"get",
			"service",
			c.Env["TARGET_SERVICE_NAME"],
		); err != nil {
			return err
		}
		c.port = service.Spec.Ports[0].Name
	}
	var nodes corev1.NodeList
	if err := c.get(ctx, c.secured(), &nodes, "get", "nodes"); err != nil {
		return err
	}
	servers, err := c.servers(ctx)
	if err != nil {
		return err
	}
	var alive []netip.Addr
	for _, address := range members(nodes.Items, servers, c.Env["IONOS_PRIVATE_LAN_ID"], c.Env["SECURED_SUBNET_PREFIX"]) {
		if c.answers(ctx, address) {
			alive = append(alive, address)
		}
	}
	if c.empty++; len(alive) > 0 {
		c.empty = 0
	}
	if threshold, _ := strconv.Atoi(c.Env["EMPTY_RESULT_THRESHOLD"]); c.empty > 0 && c.empty < threshold {
		return errors.New("nothing was found, which does not count yet")
	}
	return c.write(ctx, alive)
}

// members are the private addresses of the ready Nodes, in the order of their names.
func members(nodes []corev1.Node, servers []server, lan, prefix string) []netip.Addr {
	var all []netip.Addr
	for _, node := range nodes {
		if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			continue
		}
		for _, server := range servers {
			if "ionos://"+server.ID != node.Spec.ProviderID {
				continue
			}
			for _, nic := range server.Entities.NICs.Items {
				for _, ip := range nic.Properties.IPs {
					if address, err := netip.ParseAddr(ip); err == nil && strconv.Itoa(nic.Properties.LAN) == lan &&
						strings.HasPrefix(ip, prefix) {
						all = append(all, address)
					}
				}
			}
		}
	}
	return all
}

// server is what is read of a machine in the cloud.
type server struct {
	ID       string `json:"id"`
	Entities struct {
		NICs struct {
			Items []struct {
				Properties struct {
					LAN int      `json:"lan"`
					IPs []string `json:"ips"`
				} `json:"properties"`
			} `json:"items"`
		} `json:"nics"`
	} `json:"entities"`
}

func (c *controller) servers(ctx context.Context) ([]server, error) {
	var all []server
	for {
		url := fmt.Sprintf("%s/cloudapi/v6/datacenters/%s/servers?depth=3&offset=%d", c.Env["IONOS_API_URL"], c.Env["IONOS_DATACENTER_ID"],
			len(all))
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+c.Env["IONOS_TOKEN"])
		response, err := c.HTTP.Do(request)
		if err != nil {
			return nil, err
		}
		var page struct {
			Items []server `json:"items"`
		}
		err = json.NewDecoder(response.Body).Decode(&page)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the cloud answers %s: %w", response.Status, err)
		}
		if len(page.Items) == 0 {
			return all, nil
		}
		all = append(all, page.Items...)
	}
}

func (c *controller) answers(ctx context.Context, address netip.Addr) bool {
	if c.Env["HEALTH_CHECK_MODE"] == "off" {
		return true
	}
	timeout, _ := time.ParseDuration(c.Env["HEALTH_CHECK_TIMEOUT"])
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address.String(), c.Env["TARGET_PORT"]))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// write applies the slice. Where nothing has changed since the last apply, kubectl sends nothing.
func (c *controller) write(ctx context.Context, alive []netip.Addr) error {
	number, err := strconv.ParseInt(c.Env["TARGET_PORT"], 10, 32)
	if err != nil {
		return err
	}
	slice := discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Env["TARGET_NAMESPACE"], Name: c.Env["TARGET_ENDPOINTSLICE_NAME"],
			Labels: map[string]string{
				discoveryv1.LabelServiceName: c.Env["TARGET_SERVICE_NAME"], discoveryv1.LabelManagedBy: c.Env["TARGET_MANAGED_BY"],
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &c.port, Protocol: new(corev1.ProtocolTCP), Port: new(int32(number))}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for _, address := range alive {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	manifest, err := json.Marshal(slice)
	if err != nil {
		return err
	}
	_, err = c.kubectl(ctx, c.consuming(), manifest, "apply", "-f", "-")
	return err
}

func (c *controller) consuming() []string {
	return []string{"--kubeconfig", c.Env["TARGET_KUBECONFIG"]}
}

func (c *controller) secured() []string {
	return []string{"--kubeconfig", c.Env["SECURED_KUBECONFIG"], "--context", c.Env["SECURED_KUBECTL_CONTEXT"]}
}

func (c *controller) get(ctx context.Context, cluster []string, into any, args ...string) error {
	text, err := c.kubectl(ctx, cluster, nil, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (c *controller) kubectl(ctx context.Context, cluster []string, input []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.Kubectl, slices.Concat(cluster, args)...)
	cmd.Stdin = bytes.NewReader(input)
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return text, nil
}
