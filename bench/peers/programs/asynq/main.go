// asynq as an entrant of bench/peers: the same arguments as driver.py, the same record files as record.py, and
//
//	asynq worker SERVERS CONCURRENCY
//
// which runs that many servers, of so many goroutines each, in this process.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	first     = 100_000
	burnFor   = 5 * time.Millisecond
	napFor    = 10 * time.Millisecond
	perCPU    = 10
	idleSleep = 10 * time.Millisecond
	retention = 24 * time.Hour
)

// payload is what every peer sends: 150 bytes, and the time of the call where latency is measured.
type payload struct {
	I int     `json:"i"`
	S string  `json:"s"`
	T float64 `json:"t,omitempty"`
}

var (
	text    = strings.Repeat("abcdefghij", 14)[:131]
	results = os.Getenv("BENCH_RESULTS") == "1"
	redis   = asynq.RedisClientOpt{Addr: "127.0.0.1:" + os.Getenv("BENCH_PORT")}
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: asynq describe|produce|worker …")
	}
	switch os.Args[1] {
	case "describe":
		describe(os.Args[2:])
	case "produce":
		produce(os.Args[2:])
	case "worker":
		work(number(os.Args[2]), number(os.Args[3]))
	default:
		log.Fatalf("unknown command %q", os.Args[1])
	}
}

func describe(arguments []string) {
	flags := flag.NewFlagSet("describe", flag.ExitOnError)
	processes := flags.Int("processes", 2, "")
	naps := flags.Bool("naps", false, "")
	must(flags.Parse(arguments))
	servers, concurrency := 1, perCPU**processes
	if *naps {
		concurrency *= 10
	}
	if os.Getenv("BENCH_ENTRANT") == "asynq-4" {
		servers = 4
	}
	handlers := fmt.Sprintf("%d x %d goroutines, %d threads", servers, concurrency, *processes)
	versions := map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if strings.HasSuffix(module.Path, "/asynq") || strings.Contains(module.Path, "/go-redis/") {
				versions[module.Path] = module.Version
			}
		}
	}
	program, err := os.Executable()
	must(err)
	show(map[string]any{
		"workers":  [][]string{{program, "worker", strconv.Itoa(servers), strconv.Itoa(concurrency)}},
		"handlers": handlers,
		"bulk":     false, // BatchEnqueueContext is on its main branch, in no release
		"versions": versions,
	})
}

func produce(arguments []string) {
	flags := flag.NewFlagSet("produce", flag.ExitOnError)
	kind := flags.String("kind", "noop", "")
	tasks := flags.Int("tasks", 1, "")
	start := flags.Int("first", 0, "")
	rate := flags.Float64("rate", 0, "")
	warmUp := flags.Int("warm-up", 0, "")
	must(flags.Parse(arguments))
	client := asynq.NewClient(redis)
	must(client.Ping()) // connects
	var options []asynq.Option
	if results {
		options = append(options, asynq.Retention(retention))
	}
	chance := rand.New(rand.NewSource(int64(*start + *tasks)))
	timed := *kind == "stamp" || *kind == "load"
	begun := monotonic()
	due := begun + 0.1
	for index := range *tasks {
		if index == *warmUp && index > 0 {
			begun = monotonic()
		}
		if *rate > 0 {
			if *kind == "load" {
				due += chance.ExpFloat64() / *rate
			} else {
				due += (0.5 + chance.Float64()) / *rate
			}
			time.Sleep(time.Duration((due - monotonic()) * 1e9))
		}
		item := payload{I: first + *start + index, S: text}
		if timed {
			item.T = monotonic()
		}
		encoded, err := json.Marshal(item)
		must(err)
		_, err = client.Enqueue(asynq.NewTask(*kind, encoded), options...)
		must(err)
	}
	var usage syscall.Rusage
	seconds := monotonic() - begun
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	show(map[string]any{"seconds": seconds, "cpu_s": cpuSeconds(usage)})
}

func work(servers, concurrency int) {
	record := openRecord(os.Getenv("BENCH_RECORD"))
	handle := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		begun := monotonic()
		var item payload
		if err := json.Unmarshal(task.Payload(), &item); err != nil {
			return err
		}
		id := item.I - first
		switch task.Type() {
		case "burn":
			burn()
		case "load":
			burn()
		case "once":
			record.started(id)
			burn()
		case "nap":
			time.Sleep(napFor)
		}
		if results {
			if _, err := task.ResultWriter().Write([]byte(strconv.Itoa(item.I))); err != nil {
				return err
			}
		}
		record.ended(task.Type(), id, begun, item.T)
		return nil
	})
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	var running []*asynq.Server
	for range servers {
		server := asynq.NewServer(redis, asynq.Config{
			Concurrency: concurrency, TaskCheckInterval: idleSleep, LogLevel: asynq.ErrorLevel,
		})
		must(server.Start(handle))
		running = append(running, server)
	}
	<-stop
	var group sync.WaitGroup
	for _, server := range running {
		group.Add(1)
		go func() {
			defer group.Done()
			server.Shutdown()
		}()
	}
	group.Wait()
}

// burn uses 5 ms of CPU time of the thread it is locked to.
func burn() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	total := 0
	for end := threadTime() + burnFor.Seconds(); threadTime() < end; {
		for n := range 20_000 {
			total += n * n % 7
		}
	}
	sink = total
}

var sink int

func number(word string) int {
	value, err := strconv.Atoi(word)
	must(err)
	return value
}

func cpuSeconds(usage syscall.Rusage) float64 {
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func show(value any) {
	encoded, err := json.Marshal(value)
	must(err)
	fmt.Println(string(encoded))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
