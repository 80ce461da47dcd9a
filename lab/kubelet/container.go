package kubelet

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/process"
)

// imageUser is the user of our images.
const imageUser = 65532

// sandbox is what a Pod's processes run in: a network, a host name and a file system of its own.
type sandbox struct {
	host       *netns.Host
	address    netip.Addr
	root       string // of the container, as seen from outside
	entrypoint string
	user       int

	work   chan func()   // for the thread that is inside
	ending chan struct{} // closed: it is to end
	over   chan struct{} // closed: it has
}

// surround writes the volumes and makes the sandbox around them.
func (p *pod) surround(ctx context.Context) error {
	program, err := p.kubelet.image(p.spec().Image)
	if err != nil {
		return notUnderstood{err}
	}
	if err := p.materialise(ctx); err != nil {
		return err
	}
	s := &sandbox{
		address: p.address, root: filepath.Join(p.dir(), "root"), entrypoint: "/" + filepath.Base(program), user: int(p.user()),
		work: make(chan func()), ending: make(chan struct{}), over: make(chan struct{}),
	}
	if c := p.spec().SecurityContext; s.user == 0 &&
		(nonRoot(c) || p.object.Spec.SecurityContext != nil && yes(p.object.Spec.SecurityContext.RunAsNonRoot)) {
		return errors.New("container has runAsNonRoot and image will run as root")
	}
	if s.host, err = netns.NewHost(p.address); err != nil {
		return err
	}
	go func() { // ends with close
		defer close(s.over)
		_ = netns.OnThread(func() error {
			for {
				select {
				case do := <-s.work:
					do()
				case <-s.ending:
					return nil
				}
			}
		})
	}()
	if err := s.do(func() error { return s.furnish(p, program) }); err != nil {
		return errors.Join(err, s.close())
	}
	p.mu.Lock()
	p.sandbox = s
	p.mu.Unlock()
	return nil
}

func yes(b *bool) bool { return b != nil && *b }

func nonRoot(c *corev1.SecurityContext) bool { return c != nil && yes(c.RunAsNonRoot) }

// user is who the process runs as.
func (p *pod) user() int64 {
	if c := p.spec().SecurityContext; c != nil && c.RunAsUser != nil {
		return *c.RunAsUser
	}
	if s := p.object.Spec.SecurityContext; s != nil && s.RunAsUser != nil {
		return *s.RunAsUser
	}
	return imageUser
}

// image finds the program that stands for an image.
func (k *Kubelet) image(image string) (string, error) {
	if program, ok := k.options.Images[image]; ok {
		return program, nil
	}
	repository, _, _ := strings.Cut(image, "@")
	if slash := strings.LastIndex(repository, "/"); strings.Contains(repository[slash+1:], ":") {
		repository = repository[:strings.LastIndex(repository, ":")]
	}
	if program, ok := k.options.Images[repository]; ok {
		return program, nil
	}
	return "", fmt.Errorf("image %s: no program stands for it here", image)
}

// furnish makes the file system: the image, which is one program, what a runtime puts into
// every container, and the volumes where the template wants them.
func (s *sandbox) furnish(p *pod, program string) error {
	if err := s.host.Join(); err != nil {
		return fmt.Errorf("move onto host %s: %w", s.address, err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Sethostname([]byte(p.object.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := os.MkdirAll(s.root, 0o755); err != nil {
		return err
	}
	// What is in the image is made first; then the root is closed, and all else is mounted on it.
	type mount struct {
		from, to string
		writable bool
	}
	all := []mount{{program, s.entrypoint, false}, {"/proc", "/proc", true}}
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		all = append(all, mount{"/dev/" + device, "/dev/" + device, true})
	}
	// A program with the race detector is linked to the C library, which our images do not have.
	for _, dir := range []string{"/lib", "/lib64", "/usr/lib"} {
		if _, err := os.Stat(dir); err == nil && linked(program) {
			all = append(all, mount{dir, dir, false})
		}
	}
	hosts := filepath.Join(p.dir(), "hosts")
	if err := os.WriteFile(hosts, []byte(p.kubelet.hosts(p)), 0o644); err != nil {
		return err
	}
	all = append(all, mount{hosts, "/etc/hosts", false})
	for _, m := range p.spec().VolumeMounts {
		i := slices.IndexFunc(p.object.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return fmt.Errorf("mount %s: there is no volume %s", m.MountPath, m.Name)
		}
		writable := p.object.Spec.Volumes[i].EmptyDir != nil && !m.ReadOnly
		all = append(all, mount{volumeDir(p, m.Name), m.MountPath, writable})
	}
	for _, m := range all {
		if err := place(m.from, filepath.Join(s.root, m.to)); err != nil {
			return fmt.Errorf("make %s in the container: %w", m.to, err)
		}
	}
	if err := bind(s.root, s.root, false); err != nil {
		return err
	}
	for _, m := range all {
		if err := bind(m.from, filepath.Join(s.root, m.to), m.writable); err != nil {
			return err
		}
	}
	return nil
}

// do does something on the thread that is inside of the sandbox. It lives as long as the sandbox:
// what it starts dies with it, and so with us.
func (s *sandbox) do(something func() error) error {
	done := make(chan error)
	select {
	case s.work <- func() { done <- something() }:
		return <-done
	case <-s.over: // an exec may come while the Pod ends
		return errors.New("the Pod has ended")
	}
}

// launch starts a program inside, as the Pod's user, who is nobody else's: a user namespace makes our
// own user look so, without any capability.
func (s *sandbox) launch(cmd *exec.Cmd) error {
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: s.root, Cloneflags: syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL, Setpgid: true,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: s.user, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: s.user, HostID: os.Getgid(), Size: 1}},
	}
	return s.do(cmd.Start)
}

// linked reports whether a program needs shared libraries.
func linked(program string) bool {
	file, err := elf.Open(program)
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // it is only read
	return file.Section(".interp") != nil
}

// place makes what something can be mounted on.
func place(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(to, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	made, err := os.OpenFile(to, os.O_CREATE|os.O_RDONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return made.Close()
}

func bind(from, to string, writable bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	if writable {
		return nil
	}
	// The older way would have to repeat the flags that this machine's own mounts bear.
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, to, unix.AT_RECURSIVE, attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", to, err)
	}
	return nil
}

// hosts is the Pod's /etc/hosts.
func (k *Kubelet) hosts(p *pod) string {
	lines := []string{"127.0.0.1 localhost", p.address.String() + " " + p.object.Name}
	for name, address := range k.options.Hosts {
		lines = append(lines, address.String()+" "+name)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// start starts the container's process.
func (s *sandbox) start(p *pod, log string) (*process.Process, error) {
	env, err := p.env()
	if err != nil {
		return nil, err
	}
	words := p.spec().Command
	if len(words) == 0 {
		words = []string{s.entrypoint}
	}
	argv := append(slices.Clone(words), p.spec().Args...)
	return process.Start(process.Spec{
		Name: p.object.Name, Path: argv[0], Args: argv[1:], Env: env, Log: log, Start: s.launch,
	})
}

// env is the environment of the Pod's processes.
func (p *pod) env() ([]string, error) {
	at := p.kubelet.options.ControlPlane.Endpoint()
	env := append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=" + p.object.Name,
		"KUBERNETES_SERVICE_HOST=" + at.Addr().String(), fmt.Sprintf("KUBERNETES_SERVICE_PORT=%d", at.Port()),
	}, p.kubelet.options.Env...)
	for _, e := range p.spec().Env {
		field, limit, err := envSource(e)
		switch {
		case err != nil:
			return nil, err
		case field != "":
			e.Value = p.field(field)
		case limit != nil:
			e.Value = p.limit(limit)
		}
		env = append(env, e.Name+"="+e.Value)
	}
	return env, nil
}

// envSource says where a variable's value comes from.
func envSource(e corev1.EnvVar) (field string, limit *corev1.ResourceFieldSelector, err error) {
	from := e.ValueFrom
	switch {
	case from == nil:
		return "", nil, nil
	case from.FieldRef != nil && fieldKnown(from.FieldRef.FieldPath):
		return from.FieldRef.FieldPath, nil, nil
	case from.ResourceFieldRef != nil && from.ResourceFieldRef.ContainerName == "":
		switch from.ResourceFieldRef.Resource {
		case "limits.memory", "limits.cpu", "requests.memory", "requests.cpu":
			return "", from.ResourceFieldRef, nil
		}
	}
	return "", nil, fmt.Errorf("variable %s comes from where it is not understood", e.Name)
}

func fieldKnown(path string) bool {
	switch path {
	case "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.podIP", "status.hostIP":
		return true
	}
	return false
}

func (p *pod) field(path string) string {
	return map[string]string{
		"metadata.name": p.object.Name, "metadata.namespace": p.object.Namespace, "metadata.uid": string(p.object.UID),
		"spec.nodeName": p.object.Spec.NodeName, "spec.serviceAccountName": p.object.Spec.ServiceAccountName,
		"status.podIP": p.address.String(), "status.hostIP": p.kubelet.options.Address.String(),
	}[path]
}

// limit is a resource of the container, or what the node has of it.
func (p *pod) limit(from *corev1.ResourceFieldSelector) string {
	kind, name, _ := strings.Cut(from.Resource, ".")
	list := p.spec().Resources.Limits
	if kind == "requests" {
		list = p.spec().Resources.Requests
	}
	quantity, ok := list[corev1.ResourceName(name)]
	if !ok {
		quantity = map[string]resource.Quantity{"memory": resource.MustParse("4Gi"), "cpu": resource.MustParse("2")}[name]
	}
	divisor := from.Divisor.MilliValue()
	if divisor == 0 {
		divisor = 1000
	}
	return strconv.FormatInt((quantity.MilliValue()+divisor-1)/divisor, 10)
}

// close lets go of the sandbox. The process must have ended.
func (s *sandbox) close() error {
	close(s.ending)
	<-s.over
	return errors.Join(s.host.Close(), netns.DelAddr(s.address))
}
