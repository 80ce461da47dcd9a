package stack

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// running is what the engine says of a container.
type running struct {
	Name  string
	State struct{ Running bool }
	// Mounts of the stack are named volumes, all of them.
	Mounts []struct {
		Type, Name, Destination string
		RW                      bool
	}
	Config struct {
		User string
		Env  []string
	}
	HostConfig struct {
		ReadonlyRootfs bool
		Privileged     bool
		CapDrop        []string
		CapAdd         []string
		SecurityOpt    []string
		NetworkMode    string
		PidMode        string
		PortBindings   map[string][]struct{ HostIp, HostPort string } //nolint:revive // the engine's name
	}
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress, Gateway string }
	}
}

func (c running) networks() []string { return slices.Sorted(maps.Keys(c.NetworkSettings.Networks)) }

func docker(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	var told bytes.Buffer
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		err = errors.Join(err, errors.New(told.String()))
	}
	return out, err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := docker(t.Context(), args...)
	if err != nil {
		t.Fatalf("docker %v: %v", args, err)
	}
	return string(out)
}

// left lists all that the stack has in the engine.
func left(t *testing.T) string {
	t.Helper()
	const ours = "--filter=label=com.docker.compose.project=slicefeed"
	return must(t, "ps", "--all", ours, "--format={{.Names}}") + must(t, "volume", "ls", ours, "--format={{.Name}}") +
		must(t, "network", "ls", ours, "--format={{.Name}}") + must(t, "volume", "ls", "--filter=name=slicefeed_", "--format={{.Name}}") +
		must(t, "network", "ls", "--filter=name=slicefeed_", "--format={{.Name}}") +
		must(t, "images", "--all", "--filter=label=dev.slicefeed.stack=compose", "--format={{.Repository}}:{{.Tag}} {{.ID}}")
}

// needEngine skips a test where no stack can be started, and removes what it leaves.
func needEngine(t *testing.T) {
	t.Helper()
	if os.Getenv("SLICEFEED_VERIFY") == "" {
		t.Skip("part of make verify")
	}
	if _, err := docker(t.Context(), "version", "--format={{.Server.Version}}"); err != nil {
		t.Skipf("not run: the docker-compose stack: no Docker engine answers (%s)", strings.Join(strings.Fields(err.Error()), " "))
	}
	if there := left(t); there != "" {
		t.Skipf("not run: the docker-compose stack: one is up already; make down first:\n%s", there)
	}
	t.Cleanup(func() { // also of a stack that is half up
		_, _ = shell(context.WithoutCancel(t.Context()), "make down")
	})
}

func TestTheStackIsAsItsPageSays(t *testing.T) {
	needEngine(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "start", "compose.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps := parseTour(string(page))
	first, last := steps[0], steps[len(steps)-1]
	if first.commands != "make up\n" || last.commands != "make down\n" {
		t.Fatalf("the tour begins with %q and ends with %q", first.commands, last.commands)
	}

	t.Run("a busy port is named before anything starts", func(t *testing.T) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		out, err := shell(t.Context(), "make up SLICEFEED_CLOUD_PORT="+port)
		if err == nil || !strings.Contains(out, "port "+port+" for the side door of the cloud is busy") ||
			!strings.Contains(out, "make up SLICEFEED_CLOUD_PORT=") {
			t.Errorf("got %v\n%s", err, out)
		}
		if there := must(t, "ps", "--all", "--quiet", "--filter=label=com.docker.compose.project=slicefeed"); there != "" {
			t.Errorf("containers were made: %s", there)
		}
	})
	t.Run("another network in the place of the workers is named", func(t *testing.T) {
		must(t, "network", "create", "--subnet="+Subnet, "slicefeed-test-elsewhere")
		defer must(t, "network", "rm", "slicefeed-test-elsewhere")
		out, err := shell(t.Context(), "make up")
		if err == nil || !strings.Contains(out, "Another Docker network has "+Subnet) {
			t.Errorf("got %v\n%s", err, out)
		}
	})
	guide := &tour{t: t}
	guide.take(first)
	for _, s := range steps[1 : len(steps)-1] {
		guide.take(s)
	}
	guide.take(first) // what the tour has done away with is there again
	t.Run("apart", testApart)
	t.Run("make up again is quick and changes nothing", func(t *testing.T) {
		before := must(t, "ps", "--quiet", "--no-trunc", "--filter=label=com.docker.compose.project=slicefeed")
		start := time.Now()
		if out, err := shell(t.Context(), "make up"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("it took %.1fs", time.Since(start).Seconds())
		if diff := cmp.Diff(
			before,
			must(t, "ps", "--quiet", "--no-trunc", "--filter=label=com.docker.compose.project=slicefeed"),
		); diff != "" {
			t.Errorf("the containers that run have changed (-before +after):\n%s", diff)
		}
	})
	guide.take(last)
	if there := left(t); there != "" {
		t.Errorf("make down leaves:\n%s", there)
	}
	if _, err := os.Stat(filepath.Join(root, ".bin", "compose-local")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("make down leaves people's credentials: %v", err)
	}
}

type connections struct {
	networks []string
	volumes  map[string]string
}

// observers are the same of the profile observability.
var observers = map[string]connections{
	"secured-prometheus": {[]string{"secured", "secured-metrics"}, map[string]string{
		"secured-metrics": "rw", observability + "secured.yaml": "ro", "./deploy/slicefeed-inventory/alerts.yaml": "ro",
	}},
	"consuming-prometheus": {[]string{"consuming", "consuming-metrics"}, map[string]string{
		"consuming-metrics": "rw", observability + "consuming.yaml": "ro", "./deploy/slicefeed-writer/alerts.yaml": "ro",
	}},
	"grafana": {[]string{"consuming-metrics", "secured-metrics"}, map[string]string{
		observability + "grafana/datasources.yaml": "ro", observability + "grafana/dashboards.yaml": "ro",
		"./deploy/slicefeed-inventory/dashboard.json": "ro", "./deploy/slicefeed-writer/dashboard.json": "ro",
	}},
}

const observability = "./deploy/compose/observability/"

// apart is what each container may be connected to and what it mounts; "rw" where it may write.
var apart = map[string]connections{
	"secured-setup": {
		[]string{"secured"},
		map[string]string{
			"secured-cluster":   "rw",
			"secured-etcd":      "rw",
			"secured-cloud":     "rw",
			"secured-inventory": "rw",
			"secured-people":    "rw",
			"secured-public":    "rw",
		},
	},
	"secured-etcd": {[]string{"secured"}, map[string]string{"secured-etcd": "ro", "secured-data": "rw"}},
	"secured-api":  {[]string{"secured"}, map[string]string{"secured-cluster": "ro"}},
	"ionos":        {[]string{"secured"}, map[string]string{"secured-cloud": "ro"}},
	"inventory":    {[]string{"link", "secured"}, map[string]string{"secured-inventory": "ro", "consuming-public": "ro"}},
	"consuming-setup": {[]string{"consuming"}, map[string]string{
		"consuming-cluster": "rw", "consuming-etcd": "rw", "consuming-writer": "rw", "consuming-people": "rw", "consuming-public": "rw",
	}},
	"consuming-etcd": {[]string{"consuming"}, map[string]string{"consuming-etcd": "ro", "consuming-data": "rw"}},
	"consuming-api":  {[]string{"consuming"}, map[string]string{"consuming-cluster": "ro"}},
	"writer-1":       {[]string{"backends", "consuming", "link"}, map[string]string{"consuming-writer": "ro", "secured-public": "ro"}},
	"writer-2":       {[]string{"backends", "consuming", "link"}, map[string]string{"consuming-writer": "ro", "secured-public": "ro"}},
	"worker-1":       {[]string{"backends"}, map[string]string{}},
	"worker-2":       {[]string{"backends"}, map[string]string{}},
	"worker-3":       {[]string{"backends"}, map[string]string{}},
}

// listening is where the containers listen on more than the loopback.
var listening = map[string][]int{
	"secured-etcd": {2379}, "secured-api": {6443}, "ionos": {8444, 8445}, "inventory": {9443, 8080},
	"consuming-etcd": {2379}, "consuming-api": {6443}, "writer-1": {8080}, "writer-2": {8080},
	"worker-1": {30080}, "worker-2": {30080}, "worker-3": {30080},
}

func testApart(t *testing.T) {
	all := map[string]running{}
	names := strings.Fields(must(t, "ps", "--all", "--filter=label=com.docker.compose.project=slicefeed", "--format={{.Names}}"))
	var inspected []running
	if err := json.Unmarshal([]byte(must(t, append([]string{"inspect"}, names...)...)), &inspected); err != nil {
		t.Fatal(err)
	}
	for _, c := range inspected {
		all[strings.TrimPrefix(c.Name, "/slicefeed-")] = c
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(apart)), slices.Sorted(maps.Keys(all))); diff != "" {
		t.Fatalf("containers (-want +got):\n%s", diff)
	}
	t.Run("networks and volumes", func(t *testing.T) {
		for name, want := range apart {
			volumes := map[string]string{}
			for _, m := range all[name].Mounts {
				if m.Type != "volume" {
					t.Errorf("%s mounts a %s at %s", name, m.Type, m.Destination)
				}
				volumes[strings.TrimPrefix(m.Name, "slicefeed_")] = map[bool]string{true: "rw", false: "ro"}[m.RW]
			}
			var networks []string
			for _, n := range all[name].networks() {
				networks = append(networks, strings.TrimPrefix(n, "slicefeed_"))
			}
			if diff := cmp.Diff(want.networks, networks); diff != "" {
				t.Errorf("networks of %s (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff(want.volumes, volumes); diff != "" {
				t.Errorf("volumes of %s (-want +got):\n%s", name, diff)
			}
		}
	})
	t.Run("no privileges", func(t *testing.T) { testContained(t, all) })
	t.Run("no container can read secrets of both sides", func(t *testing.T) { testSecrets(t, all) })
	t.Run("no container can reach what is not in its networks", func(t *testing.T) { testReach(t, all) })
}

func testContained(t *testing.T, all map[string]running) {
	for name, c := range all {
		h := c.HostConfig
		if c.Config.User != "65532:65532" || !h.ReadonlyRootfs || h.Privileged || len(h.CapAdd) > 0 || h.PidMode != "" ||
			!slices.Contains(
				h.CapDrop,
				"ALL",
			) || !slices.ContainsFunc(h.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, "no-new-privileges") }) {
			t.Errorf("%s: user %q, %+v", name, c.Config.User, h)
		}
		for port, bindings := range h.PortBindings {
			for _, b := range bindings {
				if b.HostIp != "127.0.0.1" {
					t.Errorf("%s publishes %s on %q", name, port, b.HostIp)
				}
			}
		}
		for _, variable := range c.Config.Env {
			if strings.Contains(variable, cloudToken) || strings.HasPrefix(variable, "IONOS_TOKEN=") {
				t.Errorf("%s has a secret in its environment", name)
			}
		}
	}
}

// testSecrets reads, by way of the engine, every file that a container can read below its mounts.
func testSecrets(t *testing.T, all map[string]running) {
	sides := map[string]string{} // of each secret's content
	type file struct{ path, content string }
	read := map[string][]file{}
	for name, c := range all {
		for _, m := range c.Mounts {
			raw := must(t, "cp", c.Name[1:]+":"+m.Destination, "-")
			for archive := tar.NewReader(strings.NewReader(raw)); ; {
				entry, err := archive.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("read %s of %s: %v", m.Destination, name, err)
				}
				if entry.Typeflag != tar.TypeReg || strings.HasSuffix(m.Name, "-data") {
					continue // what etcd stores is no file's secret, and only etcd mounts it
				}
				content, err := io.ReadAll(archive)
				if err != nil {
					t.Fatal(err)
				}
				read[name] = append(read[name], file{filepath.Join(filepath.Dir(m.Destination), entry.Name), string(content)})
				secret := strings.Contains(string(content), "PRIVATE KEY") || strings.Contains(string(content), "client-key-data") ||
					strings.Contains(string(content), "token:") || string(content) == cloudToken
				if strings.HasSuffix(m.Name, "-public") &&
					(secret || strings.Count(string(content), "BEGIN") != 1 || filepath.Base(entry.Name) != "ca.crt") {
					t.Errorf("%s, which both sides see, has %s", m.Name, entry.Name)
				}
				if secret {
					side, _, _ := strings.Cut(strings.TrimPrefix(m.Name, "slicefeed_"), "-")
					if other := sides[string(content)]; other != "" && other != side {
						t.Errorf("both sides have the secret %s of %s", entry.Name, m.Name)
					}
					sides[string(content)] = side
				}
			}
		}
	}
	if len(sides) < 10 {
		t.Errorf("only %d secrets were found: does the test still know one when it sees it?", len(sides))
	}
	for name, files := range read {
		of := map[string][]string{}
		for _, f := range files {
			if side := sides[f.content]; side != "" {
				of[side] = append(of[side], f.path)
			}
		}
		if len(of) > 1 {
			t.Errorf("%s can read secrets of both sides: %v", name, of)
		}
		if half := name == "inventory" || strings.HasPrefix(name, "writer-"); half && len(of) == 0 {
			t.Errorf("%s has no secret at all", name)
		}
	}
}

// testReach dials from within the network of each container every listener of all others, at
// each of its addresses, and what the machine publishes.
func testReach(t *testing.T, all map[string]running) {
	for from, c := range all {
		if !c.State.Running {
			continue
		}
		want := map[string]bool{}
		for to, ports := range listening {
			for network, at := range all[to].NetworkSettings.Networks {
				_, shared := c.NetworkSettings.Networks[network]
				for _, port := range ports {
					want[net.JoinHostPort(at.IPAddress, strconv.Itoa(port))] = shared
				}
			}
		}
		// What is published, by the machine's address in each network.
		for _, network := range c.NetworkSettings.Networks {
			for _, other := range all {
				for _, bindings := range other.HostConfig.PortBindings {
					for _, b := range bindings {
						if network.Gateway != "" {
							want[net.JoinHostPort(network.Gateway, b.HostPort)] = false
						}
					}
				}
			}
		}
		got := map[string]bool{}
		args := append(
			[]string{"run", "--rm", "--network=container:" + c.Name[1:], "slicefeed-stack:compose", "connect"},
			slices.Sorted(maps.Keys(want))...)
		for line := range strings.Lines(must(t, args...)) {
			address, _, _ := strings.Cut(line, " ")
			got[address] = strings.HasSuffix(strings.TrimSpace(line), " reached") && !strings.Contains(line, "not reached")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from %s (-want +got; true: reached):\n%s", from, diff)
		}
	}
}
