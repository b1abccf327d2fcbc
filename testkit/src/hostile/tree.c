// Multiplies: tree WAY [N].
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void spin(double seconds) {
  struct timespec t;
  do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  while (t.tv_sec + t.tv_nsec / 1e9 < seconds);
}

static void *forever(void *unused) { for (;;) pause(); return unused; }

static void fork_bomb(void) { for (;;) fork(); }

static void thread_bomb(void) {
  for (;;) {
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 16384);
    pthread_create(&thread, &attr, forever, NULL);
  }
}

// The dead stay, since nobody waits for them.
static void zombie_bomb(void) { for (;;) if (fork() == 0) _exit(0); }

// Forks N times and counts how many succeeded: a program that copes.
static void count(int n) {
  // Whoever made this process may still be about to end, and is counted until then.
  usleep(1000000);
  int made = 0;
  for (int i = 0; i < n; i++) {
    pid_t pid = fork();
    if (pid == 0) { pause(); _exit(0); }
    if (pid > 0) made++;
  }
  printf("made %d\n", made);
  fflush(stdout);
}

static void burn(int n) {
  for (int i = 1; i < n; i++) if (fork() == 0) break;
  for (;;) spin(1e9);
}

// Burners too short to be seen one by one, each waited for.
static void churn(void) { for (;;) { if (fork() == 0) { spin(0.005); _exit(0); } wait(NULL); } }

// As churn, but nobody waits, so that the kernel adds their time to nobody's.
static void churn_unwaited(void) {
  signal(SIGCHLD, SIG_IGN);
  for (;;) { if (fork() == 0) { spin(0.1); _exit(0); } while (wait(NULL) > 0 || errno == EINTR) {} }
}

// Orphans: their parent is gone before they have burnt anything.
static void churn_orphans(void) {
  for (;;) {
    if (fork() == 0) { if (fork() == 0) spin(0.05); _exit(0); }
    wait(NULL);
    usleep(40000);
  }
}

// Leaves the caller's session, group and family, and lives on. The parent ends at once.
static void daemonise(void) {
  if (fork()) return;
  setsid();
  if (fork()) _exit(0);
  puts("daemon");
  fflush(stdout);
  fclose(stdout), fclose(stderr), fclose(stdin);
  for (;;) pause();
}

static void deaf(void) {
  for (int s = 1; s < 65; s++) signal(s, SIG_IGN);
  puts("deaf");
  fflush(stdout);
  for (;;) pause();
}

static void ignore(int s) { (void)s; }

// Tells every process it can name to stop and to die, init included.
static void kill_all(void) {
  for (int s = 1; s < 65; s++) if (s != SIGKILL && s != SIGSTOP && s != SIGCHLD) signal(s, ignore);
  kill(1, SIGKILL), kill(1, SIGSTOP), kill(1, SIGSEGV), kill(1, SIGTERM);
  for (int pid = 2; pid < 100000; pid++) if (pid != getpid()) kill(pid, SIGKILL);
  puts("still here");
}

int main(int argc, char **argv) {
  const char *way = argc > 1 ? argv[1] : "";
  int n = argc > 2 ? atoi(argv[2]) : 1;
  if (!strcmp(way, "fork")) fork_bomb();
  else if (!strcmp(way, "thread")) thread_bomb();
  else if (!strcmp(way, "zombie")) zombie_bomb();
  else if (!strcmp(way, "count")) count(n);
  else if (!strcmp(way, "count_and_stay")) { count(n); for (;;) pause(); }
  else if (!strcmp(way, "burn")) burn(n);
  else if (!strcmp(way, "churn")) churn();
  else if (!strcmp(way, "churn_unwaited")) churn_unwaited();
  else if (!strcmp(way, "churn_orphans")) churn_orphans();
  else if (!strcmp(way, "daemon")) daemonise();
  else if (!strcmp(way, "deaf")) deaf();
  else if (!strcmp(way, "kill")) kill_all();
  else return 2;
  return 0;
}
