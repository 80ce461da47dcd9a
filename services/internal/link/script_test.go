package link

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// These tests run deploy/certificates.sh as its users do, and connect both ends of a link with the
// certificates that it creates.

const (
	scriptInventory = SAN("spiffe://example.org/slicefeed/inventory")
	scriptWriter    = SAN("spiffe://example.org/slicefeed/writer")
	scriptOperator  = SAN("spiffe://example.org/slicefeed/operator")
)

// runScript returns the script's standard output, which is only commands, and its messages.
func runScript(t *testing.T, args ...string) (commands, messages string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../../deploy/certificates.sh", args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func mustRunScript(t *testing.T, args ...string) (commands, messages string) {
	t.Helper()
	commands, messages, err := runScript(t, args...)
	if err != nil {
		t.Fatalf("certificates.sh %s: %v\n%s", strings.Join(args, " "), err, messages)
	}
	return commands, messages
}

func sideFiles(dir, side string) Files {
	at := filepath.Join(dir, side)
	return Files{Cert: filepath.Join(at, "tls.crt"), Key: filepath.Join(at, "tls.key"), PeerCA: filepath.Join(at, "peer-ca.crt")}
}

// callBetween makes a call from a client to a server with these files.
func callBetween(t *testing.T, server, client Files) error {
	t.Helper()
	list := filepath.Join(t.TempDir(), "clients.yaml")
	writeFile(
		t,
		list,
		[]byte("clients: [{san: "+string(scriptWriter)+", role: subscriber}, {san: "+string(scriptOperator)+", role: operator}]"),
	)
	r := &testLink{files: server, listPath: list, metrics: prometheus.NewRegistry(), log: &testLog{}}
	r.start(t)
	_, err := callProbe(t, r.dialWith(t, client, scriptInventory), "Who", "")
	return err
}

func TestScriptCertificatesConnect(t *testing.T) {
	dir := t.TempDir()
	commands, messages := mustRunScript(t, "all", dir)
	for _, client := range []string{"writer", "operator"} {
		if err := callBetween(t, sideFiles(dir, "inventory"), sideFiles(dir, client)); err != nil {
			t.Errorf("the inventory and the %s: %v", client, err)
		}
	}
	if !strings.Contains(messages, "the keys of both sides are in "+dir) {
		t.Errorf("no message that both keys are in one place:\n%s", messages)
	}
	for line := range strings.Lines(commands) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "kubectl --context ") {
			t.Errorf("standard output is not a command: %s", line)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info := must(d.Info())(t); info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Neither a CA nor a certificate of one side can be used to impersonate the other side.
func TestScriptCertificatesPreventImpersonation(t *testing.T) {
	dir := t.TempDir()
	mustRunScript(t, "all", dir)
	inventory, writer := sideFiles(dir, "inventory"), sideFiles(dir, "writer")
	leaf := func(f Files) []byte { return must(os.ReadFile(f.Cert))(t) }
	if certs := must(
		parseCertificates(leaf(inventory)),
	)(
		t,
	); certs[0].CheckSignatureFrom(
		must(parseCertificates(must(os.ReadFile(inventory.PeerCA))(t)))(t)[0],
	) == nil {
		t.Error("one CA signs for both sides")
	}
	impostor := inventory
	impostor.PeerCA = writer.PeerCA
	if _, err := NewClient(
		(&testLink{log: &testLog{}, metrics: prometheus.NewRegistry()}).config("writer", "default", impostor),
		"127.0.0.1:1",
		scriptInventory,
	); err == nil ||
		!strings.Contains(err.Error(), "client auth") {
		t.Errorf("the inventory's certificate is accepted for a client: %v", err)
	}
	other := t.TempDir()
	mustRunScript(t, "all", other)
	if err := callBetween(t, inventory, sideFiles(other, "writer")); err == nil {
		t.Error("a writer with other CAs was accepted")
	}
}

func TestScriptRunsSeparatelyOnEachSide(t *testing.T) {
	secured, consuming := t.TempDir(), t.TempDir()
	commands, messages := mustRunScript(t, "inventory", secured)
	if strings.Contains(commands, "peer-ca") || !strings.Contains(messages, "missing: the CA of the writer's side") {
		t.Errorf("without the other side's CA it prints:\n%s%s", commands, messages)
	}
	mustRunScript(t, "writer", consuming)
	exchange := func(from, to string) { writeFile(t, to, must(os.ReadFile(from))(t)) }
	exchange(filepath.Join(secured, "inventory", "public-ca.crt"), filepath.Join(consuming, "writer", "peer-ca.crt"))
	exchange(filepath.Join(consuming, "writer", "public-ca.crt"), filepath.Join(secured, "inventory", "peer-ca.crt"))
	if commands, messages = mustRunScript(
		t,
		"inventory",
		secured,
	); !strings.Contains(commands, "peer-ca") ||
		strings.Contains(messages, "both sides") {
		t.Errorf("with the other side's CA it prints:\n%s%s", commands, messages)
	}
	mustRunScript(t, "writer", consuming)
	if err := callBetween(t, sideFiles(secured, "inventory"), sideFiles(consuming, "writer")); err != nil {
		t.Error(err)
	}
	mustRunScript(t, "operator", consuming)
	if err := callBetween(t, sideFiles(secured, "inventory"), sideFiles(consuming, "operator")); err != nil {
		t.Error(err)
	}
}

func TestScriptRenewsCertificatesButKeepsCAs(t *testing.T) {
	dir := t.TempDir()
	mustRunScript(t, "all", dir)
	read := func() map[string]string {
		all := map[string]string{}
		for _, name := range []string{
			"inventory/ca.crt", "inventory/ca.key", "writer/ca.crt", "writer/ca.key", "inventory/peer-ca.crt", "writer/peer-ca.crt",
			"inventory/tls.crt", "inventory/tls.key", "writer/tls.crt", "writer/tls.key", "operator/tls.crt", "operator/tls.key",
		} {
			all[name] = string(must(os.ReadFile(filepath.Join(dir, name)))(t))
		}
		return all
	}
	before, old := read(), filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	mustRunScript(t, "--days", "7", "all", dir)
	for name, text := range read() {
		if renewed, isCA := text != before[name], strings.Contains(name, "ca."); renewed == isCA {
			t.Errorf("%s: renewed %v", name, renewed)
		}
	}
	left := time.Until(must(parseCertificates(must(os.ReadFile(sideFiles(dir, "writer").Cert))(t)))(t)[0].NotAfter)
	if left < 6*24*time.Hour || left > 7*24*time.Hour {
		t.Errorf("a certificate of 7 days is valid for %v", left)
	}
	for _, pair := range [][2]string{{dir, dir}, {old, dir}, {dir, old}} {
		if err := callBetween(t, sideFiles(pair[0], "inventory"), sideFiles(pair[1], "writer")); err != nil {
			t.Error(err)
		}
	}
}

// The link works after each step, also if one side is a step behind.
func TestScriptReplacesCAWithoutDowntime(t *testing.T) {
	for _, side := range []string{"inventory", "writer"} {
		t.Run(side, func(t *testing.T) {
			dir := t.TempDir()
			mustRunScript(t, "all", dir)
			first := filepath.Join(t.TempDir(), "first")
			last := first
			for _, step := range []string{"", "next-ca", "switch-ca", "drop-ca"} {
				if step != "" {
					commands, _ := mustRunScript(t, step, side, dir)
					if n := strings.Count(commands, "create secret tls"); n != 1 {
						t.Errorf("%s prints commands for %d sides, want one:\n%s", step, n, commands)
					}
				}
				now := filepath.Join(t.TempDir(), "now")
				if err := os.CopyFS(now, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				if step == "" {
					if err := os.CopyFS(first, os.DirFS(dir)); err != nil {
						t.Fatal(err)
					}
				}
				for _, pair := range [][2]string{{now, now}, {last, now}, {now, last}} {
					if err := callBetween(t, sideFiles(pair[0], "inventory"), sideFiles(pair[1], "writer")); err != nil {
						t.Errorf("after %s: %v", step, err)
					}
				}
				last = now
			}
			inventory, writer := sideFiles(last, "inventory"), sideFiles(first, "writer")
			if side == "inventory" {
				inventory, writer = sideFiles(first, "inventory"), sideFiles(last, "writer")
			}
			if callBetween(t, inventory, writer) == nil {
				t.Error("the old CA is still trusted")
			}
		})
	}
}

func TestScriptReportsErrors(t *testing.T) {
	dir := t.TempDir()
	mustRunScript(t, "--ca-days", "30", "--days", "7", "all", dir)
	incomplete := t.TempDir()
	if err := os.Mkdir(filepath.Join(incomplete, "writer"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(incomplete, "writer", "ca.crt"), []byte("x"))
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "usage:"},
		{[]string{"inventory"}, "usage:"},
		{[]string{"both", dir}, `SIDE is "both": want inventory, writer, operator or all`},
		{[]string{"swap-ca", "writer", dir}, `STEP is "swap-ca"`},
		{[]string{"next-ca", "operator", dir}, "only inventory and writer have a CA"},
		{[]string{"--day", "3", "all", dir}, "there is no option --day"},
		{[]string{"all", dir, "--days"}, "--days wants a value"},
		{[]string{"--days", "a year", "all", dir}, `--days is "a year": want a number of days, 1 to 825`},
		{[]string{"--days", "0", "all", dir}, "1 to 825"},
		{[]string{"--days", "9999", "all", dir}, "1 to 825"},
		{[]string{"--trust-domain", "a b", "all", dir}, "--trust-domain"},
		{[]string{"--dns", "*.example.org", "all", dir}, "--dns"},
		{[]string{"--dns", "a,,b", "all", dir}, "--dns"},
		{[]string{"--dns", "a\nb", "all", dir}, "--dns"},
		{[]string{"--secured-context", "a;b", "all", dir}, "--secured-context"},
		{[]string{"--days", "31", "all", dir}, "would outlive it: take fewer --days, or replace the CA"},
		{[]string{"switch-ca", "writer", dir}, "the first step is next-ca"},
		{[]string{"drop-ca", "writer", dir}, "the steps before are next-ca and switch-ca"},
		{[]string{"writer", incomplete}, "put the missing one back"},
		{[]string{"operator", t.TempDir()}, "run this where that is kept"},
		{[]string{"all", "/proc/nowhere"}, "cannot make the directory"},
	} {
		commands, messages, err := runScript(t, c.args...)
		if err == nil || commands != "" || !strings.Contains(messages, c.want) {
			t.Errorf("certificates.sh %q: %v, want an error with %q:\n%s%s", c.args, err, c.want, commands, messages)
		}
	}
	if left := must(filepath.Glob(filepath.Join(dir, ".making*")))(t); len(left) > 0 {
		t.Errorf("script left %v", left)
	}
}

// The tests of the runbooks run these commands. This test only covers a path with special characters.
func TestScriptQuotesPaths(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "the operator's own")
	commands, _ := mustRunScript(t, "all", dir)
	cmd := exec.CommandContext(
		t.Context(),
		"bash",
		"-eu",
		"-o",
		"pipefail",
		"-c",
		`kubectl() { cat >/dev/null <&0 2>/dev/null || :; for a; do case $a in --cert=*|--key=*) [ -e "${a#*=}" ] || { echo "no ${a#*=}"; exit 1; } ;; esac; done; }`+"\n"+commands,
	)
	cmd.Stdin = strings.NewReader("")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
