/* Hands its standard streams, environment and directory to the Python that is kept warm (server.py), and ends as the
   program that ran there. With arguments, or where no server answers, it is python3. */
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

int main(int argc, char **argv, char **env) {
  struct sockaddr_un place = {.sun_family = AF_UNIX, .sun_path = PLACE};
  int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  size_t length = 0;
  if (argc > 1 || server < 0 || connect(server, (struct sockaddr *)&place, sizeof place)) goto python;
  if (!getcwd(message, 4096)) goto python;
  length = strlen(message) + 1;
  mode_t mask = umask(0);
  umask(mask);
  length += sprintf(message + length, "%o", (unsigned)mask) + 1;
  for (char **one = env; *one; one++) {
    size_t size = strlen(*one) + 1;
    if (length + size > sizeof message) goto python;
    memcpy(message + length, *one, size);
    length += size;
  }
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
