package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// idle is how long a stream may say nothing.
const idle = 5 * time.Minute

// serve serves the part of the kubelet API that kubectl needs, to the API server alone.
func (k *Kubelet) serve() error {
	ca, err := pki.NewCA("kubelet")
	if err != nil {
		return err
	}
	own, err := ca.Issue(pki.Cert{CommonName: k.options.Node, IPs: []netip.Addr{k.options.Address}, Usage: pki.Server})
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(own.CertPEM, own.KeyPEM)
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(k.options.ControlPlane.AdminConfig().CAData)
	listener, err := net.Listen("tcp", netip.AddrPortFrom(k.options.Address, port).String())
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	k.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		// Streams are SPDY, which upgrades HTTP/1.1 only.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{
				certificate,
			},
			ClientCAs:  clients,
			ClientAuth: tls.RequireAndVerifyClientCert,
			MinVersion: tls.VersionTLS13,
		},
	}
	go func() { // Stop waits for it
		defer close(k.serving)
		_ = k.server.ServeTLS(listener, "", "")
	}()
	return nil
}

// found is the Pod that a request is about; the request is answered if there is none.
func (k *Kubelet) found(w http.ResponseWriter, r *http.Request) *pod {
	p := k.pod(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil {
		http.Error(w, fmt.Sprintf("pod %q does not exist here", r.PathValue("namespace")+"/"+r.PathValue("pod")), http.StatusNotFound)
		return nil
	}
	if c := r.PathValue("container"); c != "" && c != p.spec().Name {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", c, p.object.Name), http.StatusNotFound)
		return nil
	}
	return p
}

func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	p := k.found(w, r)
	if p == nil {
		return
	}
	query := r.URL.Query()
	for _, option := range []string{"sinceSeconds", "sinceTime", "timestamps"} {
		if v := query.Get(option); v != "" && v != "false" {
			http.Error(w, option+": this stand-in keeps no time of a line", http.StatusBadRequest)
			return
		}
	}
	logs, running, _ := p.snapshot()
	at := len(logs) - 1
	if query.Get("previous") == "true" {
		if running == nil {
			at++ // the last start is the previous one already
		}
		at--
	}
	if at < 0 {
		http.Error(
			w,
			fmt.Sprintf("container %q in pod %q is waiting to start: %s", p.spec().Name, p.object.Name, p.why()),
			http.StatusBadRequest,
		)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	follow := query.Get("follow") == "true" && running != nil && at == len(logs)-1
	var over <-chan struct{}
	if follow {
		over = running.Done()
	}
	_ = copyLog(r.Context(), w, logs[at], query.Get("tailLines"), query.Get("limitBytes"), over)
}

// why says what a container waits for.
func (p *pod) why() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting := p.container.State.Waiting; waiting != nil {
		return waiting.Reason + " " + waiting.Message
	}
	return ""
}

// copyLog writes a log, and what comes to it until over is closed; nil: nothing more.
func copyLog(ctx context.Context, w http.ResponseWriter, path, tail, limit string, over <-chan struct{}) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it is only read
	raw, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(tail); err == nil {
		lines := strings.SplitAfter(string(raw), "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		raw = []byte(strings.Join(lines[max(0, len(lines)-n):], ""))
	}
	if n, err := strconv.Atoi(limit); err == nil && len(raw) > n {
		raw = raw[:n]
	}
	if _, err := w.Write(raw); err != nil || over == nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := false; ; {
		w.(http.Flusher).Flush()
		if last {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-over:
			last = true
		case <-tick.C:
		}
		if _, err := io.Copy(w, file); err != nil {
			return err
		}
	}
}

// lastWords are what FallbackToLogsOnError takes from a log: its last 80 lines, 2048 bytes at most.
func lastWords(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	raw = raw[max(0, len(raw)-2048):]
	lines := strings.SplitAfter(string(raw), "\n")
	return strings.Join(lines[max(0, len(lines)-81):], "")
}

func (k *Kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	p := k.found(w, r)
	if p == nil {
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err == nil && options.TTY {
		err = errors.New("this stand-in has no terminals: leave -t out")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, executor{p}, p.object.Name, string(p.object.UID), p.spec().Name,
		r.URL.Query()["command"], options, idle, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// executor runs commands in a Pod.
type executor struct{ *pod }

// ExecInContainer implements remotecommand.Executor.
func (e executor) ExecInContainer(
	ctx context.Context,
	_, _, _ string,
	words []string,
	in io.Reader,
	out, errOut io.WriteCloser,
	_ bool,
	_ <-chan remotecommand.TerminalSize,
	_ time.Duration,
) error {
	_, running, sandbox := e.snapshot()
	if running == nil || len(words) == 0 {
		return fmt.Errorf("container %q does not run", e.spec().Name)
	}
	env, err := e.env()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = env
	if out != nil {
		cmd.Stdout = out
	}
	if errOut != nil {
		cmd.Stderr = errOut
	}
	if in != nil {
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() { // ends with the stream, which is closed when the command has ended
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
		}()
	}
	if err = sandbox.launch(cmd); err == nil {
		err = cmd.Wait()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

func (k *Kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	p := k.found(w, r)
	if p == nil {
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, forwarder{p}, p.object.Name, string(p.object.UID), options,
		idle, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}

// forwarder connects to ports of a Pod, those on its loopback included.
type forwarder struct{ *pod }

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(ctx context.Context, _, _ string, to int32, stream io.ReadWriteCloser) error {
	_, _, sandbox := f.snapshot()
	if sandbox == nil {
		return errors.New("the Pod does not run yet")
	}
	conn, err := sandbox.host.Dial(ctx, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(to)))
	if err != nil {
		return err
	}
	return splice(stream, conn)
}

// splice copies both ways until both have ended.
func splice(a io.ReadWriteCloser, b net.Conn) error {
	sent := make(chan struct{})
	go func() { // waited for below
		defer close(sent)
		_, _ = io.Copy(b, a)
		if half, ok := b.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, err := io.Copy(a, b)
	_ = a.Close()
	<-sent
	return errors.Join(err, b.Close())
}
