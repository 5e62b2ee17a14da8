/* Hands its standard streams, arguments, environment and directory to the Python that is kept warm (warm_python.py), and
   ends as the program that ran there. With options, or where no server answers, it is python3. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACE "/run/warm-python"
#define PYTHON "/usr/bin/python3"

static char message[65536];

static size_t length;

static int add(const char *word) {
  size_t size = strlen(word) + 1;
  if (length + size > sizeof message) return 0;
  memcpy(message + length, word, size);
  length += size;
  return 1;
}

int main(int argc, char **argv, char **env) {
  struct sockaddr_un place = {.sun_family = AF_UNIX, .sun_path = PLACE};
  int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  char directory[4096], mask[8], count[16];
  if (argc > 1 && argv[1][0] == '-') goto python;
  if (server < 0 || connect(server, (struct sockaddr *)&place, sizeof place)) goto python;
  if (!getcwd(directory, sizeof directory)) goto python;
  mode_t former = umask(0);
  umask(former);
  snprintf(mask, sizeof mask, "%o", (unsigned)former);
  snprintf(count, sizeof count, "%d", argc - 1);
  if (!add(directory) || !add(mask) || !add(count)) goto python;
  for (int i = 1; i < argc; i++)
    if (!add(argv[i])) goto python;
  for (char **one = env; *one; one++)
    if (!add(*one)) goto python;
  int streams[3] = {0, 1, 2};
  char room[CMSG_SPACE(sizeof streams)] = {0};
  struct iovec text = {message, length};
  struct msghdr header = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *control = CMSG_FIRSTHDR(&header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof streams);
  memcpy(CMSG_DATA(control), streams, sizeof streams);
  if (sendmsg(server, &header, 0) < 0) goto python;
  unsigned char code = 1;
  if (recv(server, &code, 1, 0) != 1) {
    fputs("the warm Python went away\n", stderr);
    return 1;
  }
  return code;
python:
  argv[0] = PYTHON;
  execv(PYTHON, argv);
  perror(PYTHON);
  return 127;
}
