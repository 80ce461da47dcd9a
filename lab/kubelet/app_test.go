package kubelet

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"k8s.io/client-go/rest"
)

// appEnv makes the test binary the program in the container.
const appEnv = "SLICEFEED_TEST_APP"

// report is what the program says of where it finds itself.
type report struct {
	UID      int
	Host     string
	Env      map[string]string
	Files    map[string]string // below /etc/app and the account's directory
	Root     []string          // what is in /
	Writable []string          // directories that a file could be made in
	Version  string            // of the API server, asked with the in-cluster configuration
	APIError string
}

// app is a program as ours are: it complains and ends when something is missing, serves
// otherwise, and ends in order when it is told to.
func app(words []string) {
	if len(words) > 0 && words[0] == "say" {
		fmt.Fprintln(os.Stdout, "said", words[1])
		os.Exit(7)
	}
	if _, err := os.Stat("/etc/app/secret/key"); err != nil {
		fmt.Fprintln(os.Stderr, "the app needs a key:", err)
		os.Exit(2)
	}
	fmt.Fprintln(os.Stdout, "serving", os.Getenv("GREETING"))
	http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/report", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(look()) })
	http.HandleFunc("/end", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	inside, err := net.Listen("tcp", "127.0.0.1:6060")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var all sync.WaitGroup
	for _, serve := range []func() error{
		func() error { return http.ListenAndServe(":8080", nil) },
		func() error { return http.Serve(inside, nil) },
	} {
		all.Go(func() { fmt.Fprintln(os.Stderr, serve()) })
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	<-told
	fmt.Fprintln(os.Stdout, "told to end")
	os.Exit(0)
}

func look() report {
	r := report{UID: os.Getuid(), Env: map[string]string{}, Files: map[string]string{}}
	r.Host, _ = os.Hostname()
	for _, name := range []string{"GREETING", "NAME", "NAMESPACE", "GOMEMLIMIT"} {
		r.Env[name] = os.Getenv(name)
	}
	for _, dir := range []string{"/etc/app/secret", "/etc/app/config", "/etc/app/none"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if raw, err := os.ReadFile(path); err == nil {
				r.Files[path] = string(raw)
			} else if e.Name()[0] != '.' {
				r.Files[path] = err.Error()
			}
		}
	}
	entries, _ := os.ReadDir("/")
	for _, e := range entries {
		r.Root = append(r.Root, e.Name())
	}
	for _, dir := range []string{"/", "/etc", "/etc/app/secret", "/var/run/secrets/kubernetes.io/serviceaccount", "/scratch", "/dev"} {
		if os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) == nil {
			r.Writable = append(r.Writable, dir)
		}
	}
	config, err := rest.InClusterConfig()
	if err == nil {
		var client *http.Client
		if client, err = rest.HTTPClientFor(config); err == nil {
			var answer *http.Response
			if answer, err = client.Get(config.Host + "/api/v1/namespaces/shop/configmaps/mine"); err == nil {
				r.Version = answer.Status
				_ = answer.Body.Close()
			}
		}
	}
	if err != nil {
		r.APIError = err.Error()
	}
	return r
}
