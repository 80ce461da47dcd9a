package stack

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// keys makes the keys of a side in a directory of its own.
func keys(t *testing.T, name string) Job {
	t.Helper()
	j := Job{Root: t.TempDir(), PublishedPort: "26443", Log: slog.New(slog.DiscardHandler)}
	s := side{name: name, dirs: []string{"cloud"}, keys: j.inventoryKeys}
	if name == "consuming" {
		s.dirs, s.keys = nil, j.writerKeys
	}
	if err := j.makeKeys(s); err != nil {
		t.Fatal(err)
	}
	return j
}

func TestNoJobWritesTheKeyOfACA(t *testing.T) {
	for _, name := range []string{"secured", "consuming"} {
		j := keys(t, name)
		var public []string
		err := filepath.WalkDir(j.Root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			if dir := filepath.Dir(path); filepath.Base(dir) == "public" {
				public = append(public, filepath.Base(path))
			}
			cert, err := os.ReadFile(path)
			if err != nil || !strings.HasSuffix(path, ".crt") {
				return err
			}
			block, _ := pem.Decode(cert)
			parsed, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return err
			}
			if _, err := os.Stat(strings.TrimSuffix(path, ".crt") + ".key"); err == nil && parsed.IsCA {
				t.Errorf("%s: the key of a CA is beside its certificate", path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"ca.crt"}, public); diff != "" {
			t.Errorf("what the other side sees of the %s one (-want +got):\n%s", name, diff)
		}
	}
}

func TestTheHalvesKnowEachOtherByThePublicVolumesAlone(t *testing.T) {
	secured, consuming := keys(t, "secured"), keys(t, "consuming")
	for _, row := range []struct {
		what     string
		of, peer Job
		pair     string
		usage    x509.ExtKeyUsage
		san      string
	}{
		{"the inventory's", secured, consuming, "component/tls/tls", x509.ExtKeyUsageServerAuth, InventorySAN},
		{"the writer's", consuming, secured, "component/tls/tls", x509.ExtKeyUsageClientAuth, WriterSAN},
		{"the operator's", consuming, secured, "people/operator", x509.ExtKeyUsageClientAuth, OperatorSAN},
	} {
		pair, err := tls.LoadX509KeyPair(row.of.path(row.pair+".crt"), row.of.path(row.pair+".key"))
		if err != nil {
			t.Fatal(err)
		}
		if len(pair.Leaf.URIs) != 1 || pair.Leaf.URIs[0].String() != row.san {
			t.Errorf("%s certificate bears %v", row.what, pair.Leaf.URIs)
		}
		for side, job := range map[string]Job{"its own": row.of, "the other": row.peer} {
			ca, err := os.ReadFile(job.path("public", "ca.crt"))
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(ca)
			_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{row.usage}})
			if (err == nil) != (side == "its own") {
				t.Errorf("%s certificate, by the CA of %s side: %v", row.what, side, err)
			}
		}
	}
}

func TestAJobThatWasInterruptedBeginsAgain(t *testing.T) {
	j := keys(t, "secured")
	if _, err := os.Stat(j.path("cluster", complete)); err != nil {
		t.Fatal(err)
	}
	// The marker that the API server waits for comes after everything that it reads.
	broken := Job{Root: t.TempDir(), Log: j.Log}
	err := broken.makeKeys(side{name: "secured", keys: func(*pki.CA) error { return os.ErrPermission }})
	if err == nil {
		t.Fatal("no error")
	}
	if _, err := os.Stat(broken.path("cluster", complete)); err == nil {
		t.Error("the keys count as complete though the job failed")
	}
}

func TestABusyPortIsNamedWithTheVariableThatMovesIt(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for _, row := range []struct {
		name      string
		ports     []Port
		published string
		want      []string
	}{
		{"a busy one", []Port{{"A", busy, "the a"}}, "", []string{"port " + busy + " for the a is busy", "make up A="}},
		{"our own", []Port{{"A", busy, "the a"}}, "127.0.0.1:1->1/tcp, 127.0.0.1:" + busy + "->6443/tcp", nil},
		{"one of another address", []Port{{"A", busy, "the a"}}, "127.0.0.2:" + busy + "->6443/tcp", []string{"is busy"}},
		{"no number", []Port{{"A", "many", "the a"}, {"B", "0", "the b"}}, "", []string{"A=many: want a port number", "B=0: want a port number"}},
		{"one for two", []Port{{"A", busy, "the a"}, {"B", busy, "the b"}}, "", []string{"is busy", "A and B are both " + busy}},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := Busy(t.Context(), row.ports, row.published)
			if (err == nil) != (len(row.want) == 0) {
				t.Fatalf("got %v", err)
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}
