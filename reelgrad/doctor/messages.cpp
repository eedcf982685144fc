#include "reelgrad/doctor/messages.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

// Keys: CODE.what is the finding, CODE.found… its evidence and CODE.fix… what to do; a key that ends in a platform is
// chosen by the facts. Commands stay as they are in every language.
constexpr PhraseText kPhrases[] = {
    // --- PyTorch
    {"TORCH_MISSING.what", "PyTorch was not found, which reelgrad computes with.",
     "找不到 PyTorch，reelgrad 靠它计算。"},
    {"TORCH_MISSING.found", "{error}", "{error}"},
    {"TORCH_MISSING.found.nothing", "no PyTorch in any of the usual folders", "常用目录里都没有 PyTorch"},
    {"install_torch.setup",
     "Run {setup}, or install torch=={torch} into the environment, or set REELGRAD_TORCH to the folder that holds its "
     "lib/libtorch.so.",
     "运行 {setup}，或在环境中安装 torch=={torch} ，或把 REELGRAD_TORCH 设为含有 lib/libtorch.so 的目录。"},
    {"install_torch.any",
     "Run {setup}, or set REELGRAD_TORCH to the folder that holds the lib/libtorch.so of a PyTorch with CUDA.",
     "运行 {setup}，或把 REELGRAD_TORCH 设为带 CUDA 的 PyTorch 的目录（其中有 lib/libtorch.so）。"},
    {"install_torch.older_pair",
     "PyTorch {torch} with CUDA {cuda} is the pair that fits this machine: run {setup} and build reelgrad again.",
     "适合本机的是 PyTorch {torch} 加 CUDA {cuda}：运行 {setup} 并重新编译 reelgrad。"},
    {"CPU_ONLY_BUILD.what", "This PyTorch was built without CUDA: it cannot use any card.",
     "这个 PyTorch 不带 CUDA：任何显卡都用不了。"},
    {"CPU_ONLY_BUILD.found", "{dir} is version {version} without CUDA", "{dir} 的版本是 {version}，不带 CUDA"},
    {"TORCH_VERSION_MISMATCH.what", "reelgrad was built for another version of PyTorch.",
     "reelgrad 是为另一个版本的 PyTorch 编译的。"},
    {"TORCH_VERSION_MISMATCH.found", "{dir} is {version}, wanted is {wanted}", "{dir} 是 {version}，需要 {wanted}"},
    {"TORCH_UNOPENABLE.what", "PyTorch is there, but it cannot be opened.", "PyTorch 已安装，但打不开。"},
    {"TORCH_UNOPENABLE.found.failed", "{dir} cannot be opened: {error}", "{dir} 打不开：{error}"},
    {"TORCH_UNOPENABLE.found.crashed", "opening {dir} crashes: {error}", "打开 {dir} 时崩溃：{error}"},
    {"TORCH_UNOPENABLE.found.timed_out", "opening {dir} does not end: {error}", "打开 {dir} 一直没有结束：{error}"},
    {"TORCH_UNOPENABLE.found.glibc", "{dir} needs glibc {needed}, this system has {found}",
     "{dir} 需要 glibc {needed}，本系统是 {found}"},
    {"TORCH_UNOPENABLE.found.libstdcxx", "{dir} needs libstdc++ with GLIBCXX_{needed}, this system has GLIBCXX_{found}",
     "{dir} 需要带 GLIBCXX_{needed} 的 libstdc++，本系统只有 GLIBCXX_{found}"},
    {"TORCH_UNOPENABLE.found.no_text", "no reason was given", "没有给出原因"},
    {"TORCH_UNOPENABLE.fix.old_system",
     "Use a newer system (Debian 12, Ubuntu 24.04 or newer, also as a container): a library of the system cannot be "
     "exchanged alone.",
     "请用更新的系统（Debian 12、Ubuntu 24.04 或更新，容器也可以）：系统的基础库不能单独更换。"},
    {"TORCH_UNOPENABLE.fix.libstdcxx",
     "Install a newer libstdc++ (the package libstdc++6, or conda install -c conda-forge libstdcxx-ng in a conda "
     "environment), or use a newer system.",
     "安装更新的 libstdc++（软件包 libstdc++6；conda 环境中用 conda install -c conda-forge "
     "libstdcxx-ng），或换用更新的系统。"},
    {"TORCH_UNOPENABLE.fix.path",
     "Unset LD_LIBRARY_PATH ({path}) and try again: libraries of another installation may come first.",
     "取消 LD_LIBRARY_PATH（{path}）后再试：可能先找到了别处安装的库。"},
    {"TORCH_UNOPENABLE.fix.again", "Its files may be incomplete: install it again.", "文件可能不完整：请重新安装。"},
    {"CUDA_LIB_NOT_LOADED.what", "PyTorch's CUDA library is on disk, but the program runs without it.",
     "PyTorch 的 CUDA 库在磁盘上，但程序没有加载它。"},
    {"CUDA_LIB_NOT_LOADED.found", "{dir}/lib/libtorch_cuda.so is not among the libraries of the process",
     "{dir}/lib/libtorch_cuda.so 不在进程已加载的库之中"},
    {"CUDA_LIB_NOT_LOADED.fix",
     "Link it although nothing refers to it: -Wl,--no-as-needed -ltorch_cuda. reelgrad's own build does so: build or "
     "install it again.",
     "即使没有直接引用也要链接它：-Wl,--no-as-needed -ltorch_cuda。reelgrad 自己的编译就是这样：请重新编译或安装。"},
    {"TORCH_SETTINGS_CLASH.what",
     "Settings of PyTorch in the environment contradict each other or slow everything down.",
     "环境变量中的 PyTorch 设置互相矛盾，或拖慢全部计算。"},
    {"TORCH_SETTINGS_CLASH.found.pair", "{variable} has {first} and {second}", "{variable} 同时有 {first} 和 {second}"},
    {"TORCH_SETTINGS_CLASH.found.slow", "{variable}={value}", "{variable}={value}"},
    {"TORCH_SETTINGS_CLASH.fix", "Unset {variable}: reelgrad sets what it needs by itself.",
     "取消 {variable}：reelgrad 会自行设置所需的选项。"},

    // --- the driver
    {"install_driver.debian",
     "Install driver {driver} or newer and restart: add NVIDIA's package source for Debian "
     "(developer.nvidia.com/cuda-downloads), then sudo apt install linux-headers-$(uname -r) cuda-drivers. Debian's "
     "own "
     "package nvidia-driver (non-free) will do where it is new enough.",
     "安装 {driver} 或更新的驱动并重启：添加 NVIDIA 的 Debian 软件源（developer.nvidia.com/cuda-downloads），然后 "
     "sudo apt install linux-headers-$(uname -r) cuda-drivers。Debian 自带的 nvidia-driver（non-free）够新时也可以。"},
    {"install_driver.ubuntu",
     "Install driver {driver} or newer and restart: sudo ubuntu-drivers install, or sudo apt install "
     "nvidia-driver-{driver}.",
     "安装 {driver} 或更新的驱动并重启：sudo ubuntu-drivers install，或 sudo apt install nvidia-driver-{driver}。"},
    {"install_driver.fedora",
     "Install driver {driver} or newer from RPM Fusion (on RHEL and its kin: NVIDIA's package source): sudo dnf "
     "install "
     "akmod-nvidia xorg-x11-drv-nvidia-cuda; wait until the module is built, then restart.",
     "从 RPM Fusion 安装 {driver} 或更新的驱动（RHEL 系用 NVIDIA 的软件源）：sudo dnf install akmod-nvidia "
     "xorg-x11-drv-nvidia-cuda；等模块编译完成后重启。"},
    {"install_driver.arch",
     "Install driver {driver} or newer and restart: sudo pacman -Syu nvidia-open nvidia-utils (nvidia-open-dkms for "
     "another kernel).",
     "安装 {driver} 或更新的驱动并重启：sudo pacman -Syu nvidia-open nvidia-utils（其他内核用 nvidia-open-dkms）。"},
    {"install_driver.wsl",
     "Install driver {driver} or newer in Windows (nvidia.com/drivers), nothing of it inside WSL; then run wsl "
     "--shutdown in Windows and open WSL again.",
     "在 Windows 中安装 {driver} 或更新的驱动（nvidia.com/drivers），WSL 里什么驱动都不要装；然后在 Windows 中运行 wsl "
     "--shutdown，再重新打开 WSL。"},
    {"install_driver.container",
     "Install driver {driver} or newer on the host, not in the container, restart the host, and start the container "
     "anew.",
     "在宿主机上（不是容器里）安装 {driver} 或更新的驱动，重启宿主机，再重新启动容器。"},
    {"install_driver.other", "Install NVIDIA's driver {driver} or newer (nvidia.com/drivers) and restart.",
     "安装 {driver} 或更新的 NVIDIA 驱动（nvidia.com/drivers）并重启。"},
    {"NO_CARD.what", "There is no NVIDIA card.", "没有 NVIDIA 显卡。"},
    {"NO_CARD.found", "no NVIDIA card on the PCI bus", "PCI 总线上没有 NVIDIA 显卡"},
    {"NO_CARD.found.error", "no NVIDIA card on the PCI bus; {error}", "PCI 总线上没有 NVIDIA 显卡；{error}"},
    {"cpu_works", "Training and restoring still work on the processor, slowly.", "训练和修复仍可用 CPU 进行，只是慢。"},
    {"cards_on_bus", "{count} NVIDIA card(s) on the PCI bus", "PCI 总线上有 {count} 块 NVIDIA 显卡"},
    {"cards_in_wsl", "/dev/dxg is there: Windows lends its cards", "/dev/dxg 存在：Windows 提供了显卡"},
    {"error_text", "{error}", "{error}"},
    {"no_libcuda", "libcuda.so.1 cannot be opened", "打不开 libcuda.so.1"},
    {"NO_DRIVER.what", "NVIDIA's driver is not installed.", "没有安装 NVIDIA 驱动。"},
    {"NO_DRIVER.what.library", "The kernel's part of NVIDIA's driver is loaded, but its CUDA library is not installed.",
     "NVIDIA 驱动的内核模块已加载，但没有安装它的 CUDA 库。"},
    {"NO_DRIVER.found.module", "kernel module nvidia {version} is loaded", "内核模块 nvidia {version} 已加载"},
    {"NO_DRIVER.fix.library.debian", "Install the library: sudo apt install libcuda1 nvidia-smi.",
     "安装这个库：sudo apt install libcuda1 nvidia-smi。"},
    {"NO_DRIVER.fix.library.ubuntu",
     "Install the library of the same version: sudo apt install libnvidia-compute-{driver} nvidia-utils-{driver}.",
     "安装版本相同的库：sudo apt install libnvidia-compute-{driver} nvidia-utils-{driver}。"},
    {"NO_DRIVER.fix.library.fedora", "Install the library: sudo dnf install xorg-x11-drv-nvidia-cuda.",
     "安装这个库：sudo dnf install xorg-x11-drv-nvidia-cuda。"},
    {"NO_DRIVER.fix.library.arch", "Install the library: sudo pacman -S nvidia-utils.",
     "安装这个库：sudo pacman -S nvidia-utils。"},
    {"NO_DRIVER.fix.library.other",
     "Install the part of the driver that holds libcuda.so.1, of the same version {version}.",
     "安装驱动中含 libcuda.so.1 的部分，版本同为 {version}。"},
    {"NOUVEAU.what", "The card is held by nouveau, the free driver, which knows no CUDA.",
     "显卡被开源驱动 nouveau 占用，它不支持 CUDA。"},
    {"NOUVEAU.found.loaded", "kernel module nouveau is loaded, nvidia is not", "内核模块 nouveau 已加载，nvidia 没有"},
    {"NOUVEAU.found.bound", "{address} is bound to {driver}", "{address} 绑定到 {driver}"},
    {"NOUVEAU.fix.blacklist.debian",
     "NVIDIA's driver is on disk: write \"blacklist nouveau\" and \"options nouveau modeset=0\" into "
     "/etc/modprobe.d/nouveau.conf, run sudo update-initramfs -u and restart.",
     "NVIDIA 驱动已在磁盘上：在 /etc/modprobe.d/nouveau.conf 写入 \"blacklist nouveau\" 和 \"options nouveau "
     "modeset=0\"，"
     "运行 sudo update-initramfs -u 并重启。"},
    {"NOUVEAU.fix.blacklist.fedora",
     "NVIDIA's driver is on disk: run sudo grubby --update-kernel=ALL --args=\"rd.driver.blacklist=nouveau "
     "modprobe.blacklist=nouveau\" and sudo dracut --force, and restart.",
     "NVIDIA 驱动已在磁盘上：运行 sudo grubby --update-kernel=ALL --args=\"rd.driver.blacklist=nouveau "
     "modprobe.blacklist=nouveau\" 和 sudo dracut --force，然后重启。"},
    {"NOUVEAU.fix.blacklist.arch",
     "NVIDIA's driver is on disk: write \"blacklist nouveau\" into /etc/modprobe.d/nouveau.conf, take kms out of the "
     "HOOKS of /etc/mkinitcpio.conf, run sudo mkinitcpio -P and restart.",
     "NVIDIA 驱动已在磁盘上：在 /etc/modprobe.d/nouveau.conf 写入 \"blacklist nouveau\"，从 /etc/mkinitcpio.conf 的 "
     "HOOKS "
     "去掉 kms，运行 sudo mkinitcpio -P 并重启。"},
    {"NOUVEAU.fix.blacklist.other",
     "NVIDIA's driver is on disk: write \"blacklist nouveau\" into /etc/modprobe.d/nouveau.conf, build the initial "
     "RAM disk anew and restart.",
     "NVIDIA 驱动已在磁盘上：在 /etc/modprobe.d/nouveau.conf 写入 \"blacklist nouveau\"，重新生成 initramfs 并重启。"},
    {"NOUVEAU.fix.nova", "Here it is its successor: write \"blacklist nova_core\" too.",
     "这里是它的后继者：再写入 \"blacklist nova_core\"。"},
    {"NOUVEAU.fix.after", "Installing it also puts nouveau out of the way.", "安装它时也会停用 nouveau。"},
    {"MODULE_NOT_LOADED.what", "NVIDIA's driver is installed, but its kernel module is not loaded.",
     "已安装 NVIDIA 驱动，但内核模块没有加载。"},
    {"MODULE_NOT_LOADED.found.on_disk", "a module for kernel {kernel} is on disk, but not loaded",
     "内核 {kernel} 的模块在磁盘上，但没有加载"},
    {"MODULE_NOT_LOADED.found.not_built", "there is no module for kernel {kernel}", "没有内核 {kernel} 的模块"},
    {"MODULE_NOT_LOADED.found.secure_boot", "secure boot is on, which refuses modules that are not signed",
     "安全启动已开启，未签名的模块会被拒绝"},
    {"MODULE_NOT_LOADED.fix.load", "Run sudo modprobe nvidia and read what it says; else restart.",
     "运行 sudo modprobe nvidia 并查看它的提示；否则重启。"},
    {"MODULE_NOT_LOADED.fix.secure_boot",
     "Sign the module and enrol its key (sudo mokutil --import with the key of dkms or akmods, then restart and "
     "confirm "
     "in the blue menu), or switch secure boot off in the firmware.",
     "给模块签名并登记密钥（用 dkms 或 akmods 的密钥运行 sudo mokutil "
     "--import，重启后在蓝色菜单中确认），或在固件中关闭安全启动。"},
    {"MODULE_NOT_LOADED.fix.build.debian",
     "Build it for this kernel and restart: sudo apt install linux-headers-$(uname -r), then sudo dkms autoinstall.",
     "为当前内核编译模块并重启：sudo apt install linux-headers-$(uname -r)，然后 sudo dkms autoinstall。"},
    {"MODULE_NOT_LOADED.fix.build.fedora",
     "Build it for this kernel and restart: sudo dnf install kernel-devel-$(uname -r), then sudo akmods --force.",
     "为当前内核编译模块并重启：sudo dnf install kernel-devel-$(uname -r)，然后 sudo akmods --force。"},
    {"MODULE_NOT_LOADED.fix.build.arch",
     "The kernel was perhaps updated since the start: restart. If that does not help: sudo pacman -Syu "
     "nvidia-open-dkms "
     "and the headers of this kernel.",
     "可能启动之后内核更新过：请重启。若无效：sudo pacman -Syu nvidia-open-dkms 以及当前内核的头文件包。"},
    {"MODULE_NOT_LOADED.fix.build.container",
     "Load the module on the host: sudo modprobe nvidia; then restart the container.",
     "在宿主机上加载模块：sudo modprobe nvidia；然后重启容器。"},
    {"MODULE_NOT_LOADED.fix.build.other",
     "Install the driver again for this kernel, with the kernel's headers, and restart.",
     "安装内核头文件后，为当前内核重新安装驱动并重启。"},
    {"DRIVER_MISMATCH.what",
     "The driver's kernel module and its library are of different versions: it was updated, but "
     "not restarted.",
     "驱动的内核模块与库版本不同：驱动更新后没有重启。"},
    {"DRIVER_MISMATCH.found.versions", "kernel module {module}, library {library}", "内核模块 {module}，库 {library}"},
    {"DRIVER_MISMATCH.found.nvml", "NVML says {code} (driver/library version mismatch)",
     "NVML 返回 {code}（driver/library version mismatch）"},
    {"DRIVER_MISMATCH.found.cuda", "cuInit says {code} (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)",
     "cuInit 返回 {code}（CUDA_ERROR_SYSTEM_DRIVER_MISMATCH）"},
    {"DRIVER_MISMATCH.fix.container",
     "Restart the host, then create the container anew, so that it gets the libraries of the host's driver.",
     "重启宿主机，然后重新创建容器，让它得到宿主机驱动的库。"},
    {"DRIVER_MISMATCH.fix.other", "Restart the machine. If that does not help, remove the older of the two drivers.",
     "重启机器。若无效，删除两个驱动中较旧的一个。"},
    {"DRIVER_TOO_OLD.what", "The NVIDIA driver is too old for this PyTorch.", "NVIDIA 驱动对这个 PyTorch 来说太旧。"},
    {"DRIVER_TOO_OLD.found",
     "driver {driver}, which offers CUDA up to {level}; PyTorch {version} needs CUDA {cuda}, hence driver {needed} or "
     "newer",
     "驱动 {driver}，最高支持 CUDA {level}；PyTorch {version} 需要 CUDA {cuda}，因此驱动至少为 {needed}"},
    {"DRIVER_TOO_OLD.found.unknown",
     "a driver of unknown version, which offers CUDA up to {level}; PyTorch {version} needs CUDA {cuda}, hence driver "
     "{needed} or newer",
     "驱动版本未知，最高支持 CUDA {level}；PyTorch {version} 需要 CUDA {cuda}，因此驱动至少为 {needed}"},
    {"DRIVER_TOO_OLD.fix.pair", "Or build for this driver with {setup} (PyTorch {torch}, CUDA {cuda}).",
     "或用 {setup}（PyTorch {torch}，CUDA {cuda}）为现有驱动编译。"},
    {"DRIVER_TOO_OLD.fix.compat",
     "On a data-centre card ({card}) the kernel's part may stay: install the forward-compatibility package {package} "
     "from "
     "NVIDIA's package source and put /usr/local/cuda-{cuda}/compat first into LD_LIBRARY_PATH.",
     "数据中心显卡（{card}）可以不动内核驱动：从 NVIDIA 软件源安装前向兼容包 {package}，并把 "
     "/usr/local/cuda-{cuda}/compat "
     "放到 LD_LIBRARY_PATH 最前面。"},
    {"LIBCUDA_SHADOWED.what", "Another libcuda comes before that of the driver.",
     "先找到的是另一个 libcuda，而不是驱动的。"},
    {"LIBCUDA_SHADOWED.found.stub", "{path} is a stub for linking, not a driver (found by {from})",
     "{path} 只是链接用的桩库，不是驱动（由 {from} 找到）"},
    {"LIBCUDA_SHADOWED.found.wsl",
     "{path} comes first (found by {from}); under WSL it must be that of /usr/lib/wsl/lib",
     "先找到 {path}（由 {from}）；在 WSL 下应当用 /usr/lib/wsl/lib 里的"},
    {"LIBCUDA_SHADOWED.found.other",
     "{path} (version {version}, found by {from}) comes before {right}, and the kernel module is {module}",
     "{path}（版本 {version}，由 {from} 找到）先于 {right}，而内核模块是 {module}"},
    {"LIBCUDA_SHADOWED.found.compat",
     "{path} is of a forward-compatibility package, which this card does not support (cuInit says 804)",
     "{path} 来自前向兼容包，这块显卡不支持（cuInit 返回 804）"},
    {"LIBCUDA_SHADOWED.found.code", "{path} was opened; cuInit says {code} (CUDA_ERROR_STUB_LIBRARY)",
     "打开的是 {path}；cuInit 返回 {code}（CUDA_ERROR_STUB_LIBRARY）"},
    {"LIBCUDA_SHADOWED.fix.wsl",
     "Remove the Linux driver inside WSL (sudo apt purge 'nvidia-*' 'libnvidia-*' 'libcuda1*', or the tool it came "
     "with); "
     "the Windows driver is enough. Take other folders out of LD_LIBRARY_PATH.",
     "删除 WSL 里的 Linux 驱动（sudo apt purge 'nvidia-*' 'libnvidia-*' 'libcuda1*'，或用当初安装它的工具）；有 "
     "Windows "
     "驱动就够了。并从 LD_LIBRARY_PATH 去掉别的目录。"},
    {"LIBCUDA_SHADOWED.fix.stub", "Take {folder} out of {from}: it is only for linking.",
     "从 {from} 去掉 {folder}：它只用于链接。"},
    {"LIBCUDA_SHADOWED.fix.other", "Take {folder} out of {from}, or remove the package that brought {path}.",
     "从 {from} 去掉 {folder}，或删除带来 {path} 的软件包。"},
    {"DRIVER_CRASHES.what", "Asking the driver crashes.", "查询驱动时崩溃。"},
    {"DRIVER_HANGS.what", "The driver does not answer.", "驱动没有响应。"},
    {"DRIVER_CRASHES.found", "{library}: {error}", "{library}：{error}"},
    {"xids", "NVIDIA's errors in the kernel's log (XID): {xids}", "内核日志中的 NVIDIA 错误（XID）：{xids}"},
    {"DRIVER_CRASHES.fix.other",
     "Restart the machine; if it stays, install the driver again ({library} may be damaged or foreign).",
     "重启机器；若依旧，请重新安装驱动（{library} 可能损坏或来历不明）。"},
    {"DRIVER_CRASHES.fix.container",
     "Restart the container, then the host; if it stays, create the container anew with "
     "the NVIDIA container runtime.",
     "先重启容器，再重启宿主机；若依旧，请用 NVIDIA 容器运行时重新创建容器。"},
    {"DRIVER_CRASHES.fix.wsl",
     "Run wsl --shutdown in Windows and open WSL again; if it stays, install NVIDIA's driver in Windows again.",
     "在 Windows 中运行 wsl --shutdown 后重新打开 WSL；若依旧，请在 Windows 中重新安装 NVIDIA 驱动。"},
    {"DRIVER_HANGS.fix.wsl", "Run wsl --shutdown in Windows and open WSL again; if it stays, restart Windows.",
     "在 Windows 中运行 wsl --shutdown 后重新打开 WSL；若依旧，请重启 Windows。"},
    {"DRIVER_HANGS.fix.container",
     "On the host read sudo dmesg | grep -i xid, end programs that hang on the card, restart the host and then the "
     "container.",
     "在宿主机上查看 sudo dmesg | grep -i xid，结束卡在显卡上的程序，重启宿主机，再重启容器。"},
    {"DRIVER_HANGS.fix.other",
     "Read sudo dmesg | grep -i xid, end programs that hang on the card, and restart the machine.",
     "查看 sudo dmesg | grep -i xid，结束卡在显卡上的程序，然后重启机器。"},
    {"UVM_NOT_LOADED.what", "The driver's module for CUDA's memory, nvidia-uvm, is not loaded.",
     "驱动中管理 CUDA 内存的模块 nvidia-uvm 没有加载。"},
    {"UVM_NOT_LOADED.found", "nvidia {version} is loaded, nvidia_uvm is not; {error}",
     "nvidia {version} 已加载，nvidia_uvm 没有；{error}"},
    {"UVM_NOT_LOADED.fix", "Run sudo nvidia-modprobe -u -c=0, or sudo modprobe nvidia-uvm.",
     "运行 sudo nvidia-modprobe -u -c=0，或 sudo modprobe nvidia-uvm。"},
    {"UVM_NOT_LOADED.fix.container", "On the host run sudo nvidia-modprobe -u -c=0, then restart the container.",
     "在宿主机上运行 sudo nvidia-modprobe -u -c=0，然后重启容器。"},

    // --- the way to the card
    {"WSL_NO_DXG.what", "This WSL has no way to the card.", "这个 WSL 无法使用显卡。"},
    {"WSL_NO_DXG.found.wsl1", "WSL 1, without /dev/dxg", "WSL 1，没有 /dev/dxg"},
    {"WSL_NO_DXG.found.wsl2", "WSL 2, kernel {kernel}, without /dev/dxg", "WSL 2，内核 {kernel}，没有 /dev/dxg"},
    {"WSL_NO_DXG.fix.wsl1",
     "In Windows: wsl --set-version <distribution> 2, and install a current NVIDIA driver there.",
     "在 Windows 中运行：wsl --set-version <发行版> 2，并在那里安装新的 NVIDIA 驱动。"},
    {"WSL_NO_DXG.fix.wsl2",
     "In Windows: install a current NVIDIA driver, then wsl --update and wsl --shutdown; install no driver inside WSL.",
     "在 Windows 中安装新的 NVIDIA 驱动，然后运行 wsl --update 和 wsl --shutdown；WSL 里不要装驱动。"},
    {"CONTAINER_WITHOUT_RUNTIME.what", "The container was started without the NVIDIA card.",
     "容器启动时没有带上 NVIDIA 显卡。"},
    {"CONTAINER_WITHOUT_RUNTIME.found", "container ({container}) without a trace of the NVIDIA container runtime",
     "容器（{container}）中没有 NVIDIA 容器运行时的痕迹"},
    {"CONTAINER_WITHOUT_RUNTIME.found.variable", "container ({container}) with {variable}={value}",
     "容器（{container}）设置了 {variable}={value}"},
    {"CONTAINER_WITHOUT_RUNTIME.fix.docker",
     "On the host install nvidia-container-toolkit, run sudo nvidia-ctk runtime configure --runtime=docker and sudo "
     "systemctl restart docker, and start the container with docker run --gpus all.",
     "在宿主机上安装 nvidia-container-toolkit，运行 sudo nvidia-ctk runtime configure --runtime=docker 和 sudo "
     "systemctl "
     "restart docker，再用 docker run --gpus all 启动容器。"},
    {"CONTAINER_WITHOUT_RUNTIME.fix.podman",
     "On the host install nvidia-container-toolkit, run sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, "
     "and "
     "start the container with podman run --device nvidia.com/gpu=all.",
     "在宿主机上安装 nvidia-container-toolkit，运行 sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml，再用 "
     "podman "
     "run --device nvidia.com/gpu=all 启动容器。"},
    {"CONTAINER_WITHOUT_RUNTIME.fix.kubernetes",
     "Ask for the card in the pod (resources: limits: nvidia.com/gpu: 1), on a node that has NVIDIA's device plugin.",
     "在 pod 中申请显卡（resources: limits: nvidia.com/gpu: 1），节点上要有 NVIDIA 的 device plugin。"},
    {"CONTAINER_WITHOUT_RUNTIME.fix.lxc",
     "Give the container the card: lxc config device add <container> gpu gpu and nvidia.runtime=true.",
     "把显卡交给容器：lxc config device add <容器> gpu gpu，并设置 nvidia.runtime=true。"},
    {"CONTAINER_WITHOUT_RUNTIME.fix.other",
     "Start the container with the NVIDIA container runtime (nvidia-container-toolkit on the host) and the card handed "
     "over.",
     "用 NVIDIA 容器运行时（宿主机上安装 nvidia-container-toolkit）启动容器并交给它显卡。"},
    {"CONTAINER_WITHOUT_RUNTIME.fix.variable",
     "Set NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=compute,utility,video.",
     "设置 NVIDIA_VISIBLE_DEVICES=all 和 NVIDIA_DRIVER_CAPABILITIES=compute,utility,video。"},
    {"GPU_ACCESS_LOST.what", "The container has lost its access to the card while it ran.",
     "容器在运行中失去了对显卡的访问。"},
    {"GPU_ACCESS_LOST.found.nvml", "NVML says {code} ({error}) in the container ({container})",
     "容器（{container}）中 NVML 返回 {code}（{error}）"},
    {"GPU_ACCESS_LOST.found.node", "{path}: {error}, in the container ({container})",
     "容器（{container}）中 {path}：{error}"},
    {"GPU_ACCESS_LOST.fix",
     "Restart the container; the last checkpoint is kept, go on with --resume. It comes from systemctl daemon-reload "
     "on "
     "the host: hand the card over as devices (CDI), or use the cgroupfs driver.",
     "重启容器；最后的检查点还在，用 --resume 继续。起因是宿主机执行了 systemctl "
     "daemon-reload：请以设备方式（CDI）交出显卡，或改用 "
     "cgroupfs 驱动。"},
    {"DEVICE_PERMISSIONS.what", "This user may not open the card's device files.", "当前用户无权打开显卡的设备文件。"},
    {"DEVICE_PERMISSIONS.found", "{path} ({owner}): {error}", "{path}（{owner}）：{error}"},
    {"DEVICE_PERMISSIONS.fix.group", "Run sudo usermod -aG {group} $USER, log out and in again.",
     "运行 sudo usermod -aG {group} $USER，注销后重新登录。"},
    {"DEVICE_PERMISSIONS.fix.mode",
     "Run sudo chmod 666 /dev/nvidia* now; for good, remove NVreg_DeviceFileMode and the like from /etc/modprobe.d and "
     "restart.",
     "现在运行 sudo chmod 666 /dev/nvidia*；若要长期有效，从 /etc/modprobe.d 去掉 NVreg_DeviceFileMode 等设置并重启。"},
    {"DEVICE_PERMISSIONS.fix.container",
     "Start the container with the NVIDIA container runtime (--gpus all), as a user who may use the card; with SELinux "
     "also --security-opt=label=disable.",
     "用 NVIDIA 容器运行时（--gpus all）启动容器，用户须有权使用显卡；启用 SELinux 时再加 "
     "--security-opt=label=disable。"},
    {"HIDDEN_BY_VISIBLE_DEVICES.what", "CUDA_VISIBLE_DEVICES hides the card.", "CUDA_VISIBLE_DEVICES 隐藏了显卡。"},
    {"HIDDEN_BY_VISIBLE_DEVICES.found.empty", "CUDA_VISIBLE_DEVICES is set and empty: no card is shown",
     "CUDA_VISIBLE_DEVICES 被设为空：不显示任何显卡"},
    {"HIDDEN_BY_VISIBLE_DEVICES.found.none", "CUDA_VISIBLE_DEVICES={value} means no card",
     "CUDA_VISIBLE_DEVICES={value} 表示不用任何显卡"},
    {"HIDDEN_BY_VISIBLE_DEVICES.found.index",
     "CUDA_VISIBLE_DEVICES={value}, but there are {count} card(s), numbered from 0",
     "CUDA_VISIBLE_DEVICES={value}，但只有 {count} 块显卡，从 0 编号"},
    {"HIDDEN_BY_VISIBLE_DEVICES.found.uuid", "CUDA_VISIBLE_DEVICES={value} names a card that is not there",
     "CUDA_VISIBLE_DEVICES={value} 指的显卡不存在"},
    {"HIDDEN_BY_VISIBLE_DEVICES.found.word", "CUDA_VISIBLE_DEVICES={value} is neither a number nor a UUID",
     "CUDA_VISIBLE_DEVICES={value} 既不是编号也不是 UUID"},
    {"HIDDEN_BY_VISIBLE_DEVICES.found.some",
     "CUDA_VISIBLE_DEVICES={value} names {named} cards, of which {count} can be seen",
     "CUDA_VISIBLE_DEVICES={value} 列出 {named} 块显卡，只看得到 {count} 块"},
    {"HIDDEN_BY_VISIBLE_DEVICES.fix",
     "Unset CUDA_VISIBLE_DEVICES, or name a card that is there (nvidia-smi -L lists them).",
     "取消 CUDA_VISIBLE_DEVICES，或写一块存在的显卡（nvidia-smi -L 可列出）。"},
    {"MIG_WITHOUT_INSTANCE.what", "MIG is on, but the card has no instance: CUDA has nothing to run on.",
     "MIG 已开启，但显卡上没有实例：CUDA 无处运行。"},
    {"MIG_WITHOUT_INSTANCE.found", "{count} card(s) with MIG on and no instance",
     "{count} 块显卡开启了 MIG 却没有实例"},
    {"MIG_WITHOUT_INSTANCE.fix",
     "Make an instance (sudo nvidia-smi mig -lgip lists the profiles, sudo nvidia-smi mig -cgi <profile> -C makes "
     "one), or "
     "switch MIG off: sudo nvidia-smi -mig 0.",
     "创建实例（sudo nvidia-smi mig -lgip 列出规格，sudo nvidia-smi mig -cgi <规格> -C 创建），或关闭 MIG：sudo "
     "nvidia-smi -mig 0。"},
    {"COMPUTE_PROHIBITED.what", "The card's compute mode forbids computing.", "显卡的计算模式禁止计算。"},
    {"COMPUTE_PROHIBITED.found", "{count} card(s) in compute mode \"prohibited\"",
     "{count} 块显卡的计算模式是 \"prohibited\""},
    {"COMPUTE_PROHIBITED.fix", "Run sudo nvidia-smi -c DEFAULT.", "运行 sudo nvidia-smi -c DEFAULT。"},
    {"EXCLUSIVE_MODE.what", "The card serves one program at a time, by its compute mode.",
     "显卡的计算模式只允许一个程序使用。"},
    {"EXCLUSIVE_MODE.found.free", "{card}: exclusive_process, and nobody uses it now",
     "{card}：exclusive_process，现在没有程序使用"},
    {"EXCLUSIVE_MODE.found.taken", "{card}: exclusive_process, and it is taken: {processes}",
     "{card}：exclusive_process，已被占用：{processes}"},
    {"EXCLUSIVE_MODE.found.refused", "{card}: exclusive_process; {error}", "{card}：exclusive_process；{error}"},
    {"EXCLUSIVE_MODE.fix", "End the other program, or run sudo nvidia-smi -c DEFAULT.",
     "结束另一个程序，或运行 sudo nvidia-smi -c DEFAULT。"},
    {"TOO_MANY_OPEN_FILES.what", "This process may not open enough files.", "本进程可打开的文件数不够。"},
    {"TOO_MANY_OPEN_FILES.found.counts", "{used} of {limit} are open", "上限 {limit} 个，已打开 {used} 个"},
    {"TOO_MANY_OPEN_FILES.found.limit", "at most {limit} at a time", "最多同时打开 {limit} 个"},
    {"TOO_MANY_OPEN_FILES.fix", "Run ulimit -n 65536 before it; for good, raise nofile in /etc/security/limits.conf.",
     "运行前执行 ulimit -n 65536；若要长期有效，提高 /etc/security/limits.conf 中的 nofile。"},
    {"TOO_MANY_OPEN_FILES.fix.container", "Start the container with --ulimit nofile=65536:65536.",
     "启动容器时加上 --ulimit nofile=65536:65536。"},
    {"FALLEN_OFF_BUS.what", "A card has fallen off the bus: it no longer answers.", "显卡已从总线脱落：不再响应。"},
    {"FALLEN_OFF_BUS.found.reads", "{address} does not answer on the PCI bus", "PCI 总线上的 {address} 没有响应"},
    {"FALLEN_OFF_BUS.found.xid", "XID 79 in the kernel's log", "内核日志中有 XID 79"},
    {"FALLEN_OFF_BUS.found.nvml", "NVML says {code} (the GPU is lost)", "NVML 返回 {code}（显卡已丢失）"},
    {"FALLEN_OFF_BUS.fix",
     "Switch the machine off and on again. If it returns: check the card's seat, its power cables, the power supply "
     "and "
     "the temperature.",
     "关机后重新开机。若再次出现：检查显卡是否插好、供电线、电源和温度。"},
    {"CARD_UNAVAILABLE.what", "The driver gives no card to this program.", "驱动没有给本程序任何显卡。"},
    {"CARD_UNAVAILABLE.found.counts", "the driver counts 0 devices", "驱动报告 0 个设备"},
    {"CARD_UNAVAILABLE.found.bound", "{address} is bound to {driver}", "{address} 绑定到 {driver}"},
    {"CARD_UNAVAILABLE.found.nodes", "there is no file /dev/nvidia0", "没有设备文件 /dev/nvidia0"},
    {"CARD_UNAVAILABLE.found.visible", "CUDA_VISIBLE_DEVICES={value}", "CUDA_VISIBLE_DEVICES={value}"},
    {"CARD_UNAVAILABLE.found.fabric", "cuInit says 802: the system is not ready (NVSwitch)",
     "cuInit 返回 802：系统尚未就绪（NVSwitch）"},
    {"CARD_UNAVAILABLE.fix.container",
     "Restart the container with the NVIDIA container runtime; if it stays, restart the host and read sudo dmesg | "
     "grep -i "
     "nvrm there.",
     "用 NVIDIA 容器运行时重启容器；若依旧，重启宿主机，并在那里查看 sudo dmesg | grep -i nvrm。"},
    {"CARD_UNAVAILABLE.fix.wsl",
     "Run wsl --shutdown in Windows and open WSL again; if it stays, restart Windows and install its NVIDIA driver "
     "again.",
     "在 Windows 中运行 wsl --shutdown 后重新打开 WSL；若依旧，重启 Windows 并重新安装 NVIDIA 驱动。"},
    {"CARD_UNAVAILABLE.fix.other",
     "Restart the machine. If it stays, read sudo dmesg | grep -i nvrm and install the driver again.",
     "重启机器。若依旧，查看 sudo dmesg | grep -i nvrm 并重新安装驱动。"},
    {"CARD_UNAVAILABLE.fix.bound",
     "Give the card back from {driver} (a virtual machine's reservation): remove it from the kernel's "
     "command line and /etc/modprobe.d, and restart.",
     "从 {driver}（为虚拟机预留）收回显卡：从内核命令行和 /etc/modprobe.d 中去掉它，然后重启。"},
    {"CARD_UNAVAILABLE.fix.nodes", "Make the device files: sudo nvidia-modprobe -c=0 -u.",
     "创建设备文件：sudo nvidia-modprobe -c=0 -u。"},
    {"CARD_UNAVAILABLE.fix.fabric",
     "Start the fabric manager of the driver's version: sudo systemctl enable --now nvidia-fabricmanager.",
     "启动与驱动同版本的 fabric manager：sudo systemctl enable --now nvidia-fabricmanager。"},

    // --- cards
    {"CARD_TOO_OLD.what", "This card is too old.", "这块显卡太旧。"},
    {"CARD_TOO_OLD.found", "{card} has compute capability {capability}; {least} is the least",
     "{card} 的计算能力是 {capability}；至少需要 {least}"},
    {"CARD_TOO_OLD.fix", "Use a card of the Turing generation (GTX 16, RTX 20) or newer.",
     "请使用 Turing（GTX 16、RTX 20）或更新的显卡。"},
    {"CARD_NOT_IN_BUILD.what", "This build of reelgrad has no kernels for this card.",
     "这个 reelgrad 没有为这块显卡编译内核。"},
    {"CARD_NOT_IN_BUILD.found", "{card} has compute capability {capability}; built for {built}",
     "{card} 的计算能力是 {capability}；编译目标为 {built}"},
    {"CARD_NOT_IN_BUILD.fix", "Build for every card: cmake --preset full && cmake --build --preset full.",
     "为所有显卡编译：cmake --preset full && cmake --build --preset full。"},
    {"CARD_NOT_IN_TORCH.what", "This PyTorch has no kernels for this card.", "这个 PyTorch 没有这块显卡的内核。"},
    {"CARD_NOT_IN_TORCH.found", "{card} has compute capability {capability}; PyTorch {version} was built for {built}",
     "{card} 的计算能力是 {capability}；PyTorch {version} 的编译目标为 {built}"},
    {"CARD_NOT_IN_TORCH.fix.pair",
     "Take the PyTorch that has them, {torch} with CUDA {cuda}: run {setup} and build reelgrad again.",
     "改用带有它们的 PyTorch {torch}（CUDA {cuda}）：运行 {setup} 并重新编译 reelgrad。"},
    {"CARD_NOT_IN_TORCH.fix.none", "No PyTorch that reelgrad builds on knows this card: use another card.",
     "reelgrad 所用的 PyTorch 都不支持这块显卡：请换一块。"},
    {"TRIAL_FAILED.what", "Work fails on this card, although it is listed.", "显卡虽已列出，实际运算却失败。"},
    {"TRIAL_FAILED.found.failed", "{card}: the trial through {by} failed: {error}",
     "{card}：经由 {by} 的试运行失败：{error}"},
    {"TRIAL_FAILED.found.crashed", "{card}: the trial through {by} crashed: {error}",
     "{card}：经由 {by} 的试运行崩溃：{error}"},
    {"TRIAL_FAILED.found.timed_out", "{card}: the trial through {by} did not end: {error}",
     "{card}：经由 {by} 的试运行没有结束：{error}"},
    {"TRIAL_FAILED.fix.memory", "Free the card's memory: end the programs that hold it (nvidia-smi lists them).",
     "释放显存：结束占用它的程序（nvidia-smi 可列出）。"},
    {"TRIAL_FAILED.fix",
     "Restart the machine and try again. If it stays, try the card with another driver, and look for "
     "XID errors with sudo dmesg | grep -i xid.",
     "重启机器再试。若依旧，换一个驱动试试，并用 sudo dmesg | grep -i xid 查看 XID 错误。"},
    {"THERMAL_THROTTLE.what", "The card slows down because it is hot.", "显卡因过热而降速。"},
    {"THERMAL_THROTTLE.found.reasons", "{card}: {reasons}", "{card}：{reasons}"},
    {"THERMAL_THROTTLE.found.temperature", "{card}: {temperature} °C, it slows down from {slowdown} °C",
     "{card}：{temperature} °C，从 {slowdown} °C 起降速"},
    {"THERMAL_THROTTLE.fix",
     "Clean the fans, let air through the case, raise the fan curve; in a server check the airflow.",
     "清理风扇，改善机箱通风，提高风扇转速；服务器请检查风道。"},
    {"POWER_LIMITED.what", "The card is held back by its power limit.", "显卡被功耗上限压制。"},
    {"POWER_LIMITED.found.limit", "{card}: limit {limit} W, by default {default} W",
     "{card}：上限 {limit} W，默认 {default} W"},
    {"POWER_LIMITED.found.brake", "{card}: hw_power_brake_slowdown, the power supply holds it back",
     "{card}：hw_power_brake_slowdown，电源在限制它"},
    {"POWER_LIMITED.found.stuck", "{card}: {clock} of {most} MHz under sw_power_cap, {power} W of {limit} W",
     "{card}：在 sw_power_cap 下 {clock} MHz（最高 {most} MHz），{power} W（上限 {limit} W）"},
    {"POWER_LIMITED.fix.stuck",
     "Switch the machine off, take it off its power for a minute, and start it again; then update its firmware.",
     "关机并断电一分钟后再开机；然后更新固件。"},
    {"POWER_LIMITED.fix",
     "If it was not meant so: sudo nvidia-smi -i {index} -pl {default}. Check power cables and supply.",
     "若非有意：sudo nvidia-smi -i {index} -pl {default}。并检查供电线和电源。"},
    {"POWER_LIMITED.fix.brake", "Check the card's power cables and the power supply.", "检查显卡供电线和电源。"},
    {"CARD_SHARED.what", "Other programs use the card too: less memory and speed are left.",
     "其他程序也在用这块显卡：剩下的显存和速度更少。"},
    {"CARD_SHARED.found", "{card}: {processes}", "{card}：{processes}"},
    {"CARD_SHARED.fix", "End what is not needed, or choose another card with device = \"cuda:N\".",
     "结束不需要的程序，或用 device = \"cuda:N\" 换一块显卡。"},
    {"MEMORY_HELD_INVISIBLY.what", "Memory of the card is held by nobody who can be seen.",
     "有显存被看不见的进程占用。"},
    {"MEMORY_HELD_INVISIBLY.found", "{card}: {held} MiB held by no visible process ({used} MiB used in all)",
     "{card}：{held} MiB 不属于任何可见进程（共用去 {used} MiB）"},
    {"MEMORY_HELD_INVISIBLY.fix",
     "It belongs to a program of another user or container, or to one that died: sudo fuser -v /dev/nvidia* shows who "
     "holds the card; end it, or restart.",
     "它属于其他用户或容器的程序，或已死的程序：sudo fuser -v /dev/nvidia* 显示谁占着显卡；结束它，或重启。"},
    {"MEMORY_HELD_INVISIBLY.fix.wsl", "Windows and its programs hold it: close those that use the card.",
     "由 Windows 和其中的程序占用：关闭使用显卡的程序。"},
    {"NARROW_PCIE.what", "The card's PCIe link is slower than it could be.", "显卡的 PCIe 链路没有达到应有的速度。"},
    {"NARROW_PCIE.found", "{card}: x{width} of x{most}", "{card}：x{width}，最多 x{most}"},
    {"NARROW_PCIE.found.generation", "{card}: PCIe generation {generation} of {most} while copying, {gbs} GB/s",
     "{card}：复制时为 PCIe 第 {generation} 代（最高第 {most} 代），{gbs} GB/s"},
    {"NARROW_PCIE.fix.generation",
     "Seat the card and its riser again, and set the slot's PCIe speed in the firmware to its highest.",
     "重新插好显卡和转接线，并在固件中把插槽的 PCIe 速度设为最高。"},
    {"NARROW_PCIE.fix",
     "Put it into the slot that is wired with x{most} (the board's manual says which), and seat it again.",
     "插到接通 x{most} 的插槽（见主板手册），并重新插好。"},
    {"ECC_ERRORS.what", "The card's memory has errors that could not be corrected.", "显存出现无法纠正的错误。"},
    {"ECC_ERRORS.found.count", "{card}: {count} since the driver was loaded", "{card}：驱动加载以来 {count} 次"},
    {"ECC_ERRORS.fix",
     "Restart, so that faulty rows are taken out of use; if it returns, have the card exchanged "
     "(nvidia-smi -q -d ECC,ROW_REMAPPER).",
     "重启，让坏行停用；若再次出现，请更换显卡（nvidia-smi -q -d ECC,ROW_REMAPPER）。"},
    {"CARD_SLOW.what", "The card is far slower than its kind.", "显卡远慢于同型号应有的速度。"},
    {"CARD_SLOW.found.to_card", "{card}: copying to the card {measured} GB/s, expected about {expected}",
     "{card}：复制到显卡 {measured} GB/s，应约为 {expected}"},
    {"CARD_SLOW.found.from_card", "{card}: copying from the card {measured} GB/s, expected about {expected}",
     "{card}：从显卡复制 {measured} GB/s，应约为 {expected}"},
    {"CARD_SLOW.found.card_memory", "{card}: its own memory {measured} GB/s, expected about {expected}",
     "{card}：显存 {measured} GB/s，应约为 {expected}"},
    {"CARD_SLOW.found.matmul", "{card}: half-precision matrix product {measured} TFLOP/s, expected about {expected}",
     "{card}：半精度矩阵乘 {measured} TFLOP/s，应约为 {expected}"},
    {"CARD_SLOW.fix",
     "See that nothing else runs on it, that it is cool and gets its power (nvidia-smi -q -d "
     "PERFORMANCE,CLOCK), and that its slot has all lanes; then try again.",
     "确认没有别的程序在用、温度和供电正常（nvidia-smi -q -d PERFORMANCE,CLOCK）、插槽通道齐全，然后再试。"},

    // --- the rest of the machine
    {"MEMLOCK_LOW.what", "Little memory may be locked, which some ways of copying need.",
     "可锁定的内存很少，某些复制方式需要它。"},
    {"MEMLOCK_LOW.found", "ulimit -l says {kb} KiB", "ulimit -l 为 {kb} KiB"},
    {"MEMLOCK_LOW.fix", "Raise memlock in /etc/security/limits.conf (to unlimited) and log in again.",
     "提高 /etc/security/limits.conf 中的 memlock（设为 unlimited），重新登录。"},
    {"MEMLOCK_LOW.fix.container", "Start the container with --ulimit memlock=-1.",
     "启动容器时加上 --ulimit memlock=-1。"},
    {"SHM_SMALL.what", "The container's /dev/shm is small; several cards exchange data through it.",
     "容器的 /dev/shm 很小；多卡之间靠它交换数据。"},
    {"SHM_SMALL.found", "{mb} MiB", "{mb} MiB"},
    {"SHM_SMALL.fix", "Start the container with --shm-size=1g (or --ipc=host).",
     "启动容器时加上 --shm-size=1g（或 --ipc=host）。"},
    {"DISK_FULL.what", "Little room is left where runs are written.", "存放训练结果的磁盘空间不足。"},
    {"DISK_FULL.found", "{mb} MiB free in {dir}", "{dir} 剩余 {mb} MiB"},
    {"DISK_FULL.fix", "Free some room (old checkpoints are the largest), or set run.dir to another disk.",
     "腾出空间（旧检查点最大），或把 run.dir 设到别的磁盘。"},
    {"MEMORY_LIMIT_SMALL.what", "Little main memory is available.", "可用内存很少。"},
    {"MEMORY_LIMIT_SMALL.found.limit", "the control group allows {mb} MiB", "控制组只允许 {mb} MiB"},
    {"MEMORY_LIMIT_SMALL.found.ram", "the machine has {mb} MiB", "机器共有 {mb} MiB"},
    {"MEMORY_LIMIT_SMALL.fix.limit",
     "Raise the limit (docker run --memory=16g, MemoryMax= of the unit, the pod's limits).",
     "提高上限（docker run --memory=16g、服务单元的 MemoryMax=、pod 的 limits）。"},
    {"MEMORY_LIMIT_SMALL.fix.ram", "Close other programs, or lower data.batch and the number of threads.",
     "关闭其他程序，或减小 data.batch 和线程数。"},

    // --- video
    {"VAPOURSYNTH_MISSING.what", "VapourSynth cannot be used, which reads every clip.",
     "无法使用 VapourSynth，所有视频都靠它读取。"},
    {"VAPOURSYNTH_MISSING.found", "it was not found", "没有找到"},
    {"VAPOURSYNTH_MISSING.fix",
     "Run scripts/setup.sh, or install VapourSynth R81 or newer into the environment (pip install vapoursynth).",
     "运行 scripts/setup.sh，或在环境中安装 VapourSynth R81 或更新版本（pip install vapoursynth）。"},
    {"VAPOURSYNTH_OLD.what", "VapourSynth is too old.", "VapourSynth 太旧。"},
    {"VAPOURSYNTH_OLD.found", "{core}, needed is R{least} or newer", "{core}，需要 R{least} 或更新"},
    {"NO_SOURCE_PLUGIN.what", "VapourSynth has no plugin that opens videos.", "VapourSynth 没有能打开视频的插件。"},
    {"NO_SOURCE_PLUGIN.found", "none of bs, lsmas and ffms2 is among its plugins", "插件中没有 bs、lsmas 或 ffms2"},
    {"NO_SOURCE_PLUGIN.fix", "Install BestSource: pip install vapoursynth-bestsource, or run scripts/setup.sh.",
     "安装 BestSource：pip install vapoursynth-bestsource，或运行 scripts/setup.sh。"},
    {"FFMPEG_MISSING.what", "ffmpeg was not found: only .y4m files can be written.",
     "找不到 ffmpeg：只能写 .y4m 文件。"},
    {"FFMPEG_MISSING.found", "no program ffmpeg on PATH", "PATH 中没有 ffmpeg 程序"},
    {"install_ffmpeg.debian", "Install it: sudo apt install ffmpeg.", "安装：sudo apt install ffmpeg。"},
    {"install_ffmpeg.fedora", "Install it from RPM Fusion: sudo dnf install ffmpeg --allowerasing.",
     "从 RPM Fusion 安装：sudo dnf install ffmpeg --allowerasing。"},
    {"install_ffmpeg.arch", "Install it: sudo pacman -S ffmpeg.", "安装：sudo pacman -S ffmpeg。"},
    {"install_ffmpeg.other", "Install ffmpeg with libx264 (ffmpeg.org) and put it on PATH.",
     "安装带 libx264 的 ffmpeg（ffmpeg.org）并放到 PATH 中。"},
    {"FFMPEG_WITHOUT_X264.what", "This ffmpeg cannot write H.264 on the processor.",
     "这个 ffmpeg 不能用 CPU 写 H.264。"},
    {"FFMPEG_WITHOUT_X264.found", "{path} {version} has no libx264; it has {encoders}",
     "{path} {version} 没有 libx264；有 {encoders}"},
    {"VULKAN_TOO_OLD.what",
     "Frames cannot stay on the card between decoder and network: Vulkan 1.4 is needed for that.",
     "帧不能一直留在显卡上（从解码到网络）：那需要 Vulkan 1.4。"},
    {"VULKAN_TOO_OLD.found.loader", "Vulkan loader {loader}", "Vulkan 加载器 {loader}"},
    {"VULKAN_TOO_OLD.found.none", "no Vulkan loader", "没有 Vulkan 加载器"},
    {"VULKAN_TOO_OLD.found.devices", "devices: {devices}", "设备：{devices}"},
    {"VULKAN_TOO_OLD.fix",
     "It works without. For more speed install a Vulkan loader of 1.4 and a driver that offers 1.4.",
     "没有也能用。若要更快，安装 1.4 的 Vulkan 加载器和支持 1.4 的驱动。"},

    // --- somebody's own Python
    {"in_python", "In {python}: {what}", "在 {python} 中：{what}"},
    {"PYTHON_UNREADABLE.what", "This Python cannot be read.", "无法读取这个 Python。"},
    {"PYTHON_UNREADABLE.fix", "Name the python program of the environment itself, as `which python` prints it there.",
     "请给出该环境自己的 python 程序，即在那里 `which python` 显示的路径。"},
    {"PYTHON_TORCH_MISSING.what", "PyTorch is not installed there.", "那里没有安装 PyTorch。"},
    {"PYTHON_CARD_UNAVAILABLE.what", "PyTorch there says that no card is available, for no reason that can be seen.",
     "那里的 PyTorch 说没有可用的显卡，但看不出原因。"},
    {"PYTHON_CARD_UNAVAILABLE.found", "torch.cuda.is_available() is False, {count} device(s)",
     "torch.cuda.is_available() 为 False，{count} 个设备"},
    {"PYTHON_CARD_UNAVAILABLE.found.error", "{error}", "{error}"},
    {"install_python_torch.pip", "Run {python} -m pip install --force-reinstall torch --index-url {index}",
     "运行 {python} -m pip install --force-reinstall torch --index-url {index}"},
    {"install_python_torch.conda",
     "In a conda environment: conda install -c conda-forge pytorch-gpu, or {python} -m pip install --force-reinstall "
     "torch "
     "--index-url {index}",
     "在 conda 环境中：conda install -c conda-forge pytorch-gpu，或 {python} -m pip install --force-reinstall torch "
     "--index-url {index}"},
    {"install_python_torch.none", "No PyTorch of today goes with this driver and card: use a newer card or driver.",
     "目前没有与这个驱动和显卡相配的 PyTorch：请换用更新的显卡或驱动。"},
    {"install_python_torch.older",
     "Or, for this driver, {python} -m pip install --force-reinstall torch --index-url {index}",
     "或针对现有驱动：{python} -m pip install --force-reinstall torch --index-url {index}"},

    // --- why a card of the list will not run
    {"why_not.old", "compute capability {capability} is below {least}", "计算能力 {capability} 低于 {least}"},
    {"why_not.kernels", "this build has no kernels for compute capability {capability} (built for {built})",
     "没有计算能力 {capability} 的内核（编译目标为 {built}）"},
    {"why_not.torch_kernels", "PyTorch has no kernels for compute capability {capability} (built for {built})",
     "PyTorch 没有计算能力 {capability} 的内核（编译目标为 {built}）"},
    {"why_not.driver", "the driver is older than {needed}", "驱动低于 {needed}"},
    {"why_not.no_torch", "PyTorch was not found", "找不到 PyTorch"},
    {"why_not.cpu_torch", "PyTorch was built without CUDA", "PyTorch 不带 CUDA"},
    {"why_not.other_torch", "PyTorch is {version} instead of {wanted}", "PyTorch 是 {version}，应为 {wanted}"},
    {"why_not.unopenable", "PyTorch cannot be opened", "打不开 PyTorch"},
    {"why_not.prohibited", "its compute mode forbids computing", "计算模式禁止计算"},
    {"why_not.mig", "MIG is on and there is no instance", "MIG 已开启但没有实例"},
    {"why_not.trial", "the trial failed: {error}", "试运行失败：{error}"},

    // --- the report
    {"report.machine", "This machine", "本机"},
    {"report.software", "Software", "软件"},
    {"report.cards", "Cards", "显卡"},
    {"report.findings", "Findings", "诊断结果"},
    {"report.system", "system", "系统"},
    {"report.system.value", "{os}, kernel {kernel}", "{os}，内核 {kernel}"},
    {"report.wsl", "WSL {version}", "WSL {version}"},
    {"report.container", "container: {container}", "容器：{container}"},
    {"report.memory", "memory", "内存"},
    {"report.memory.value", "{total} MiB, {free} MiB free", "{total} MiB，空闲 {free} MiB"},
    {"report.disk", "disk", "磁盘"},
    {"report.disk.value", "{free} MiB free in {dir} ({file_system})", "{dir} 剩余 {free} MiB（{file_system}）"},
    {"report.driver", "driver", "驱动"},
    {"report.driver.value", "{version}, CUDA up to {cuda}", "{version}，最高支持 CUDA {cuda}"},
    {"report.unknown_version", "unknown version", "版本未知"},
    {"report.not_found", "not found", "未找到"},
    {"report.none", "none", "无"},
    {"report.torch.value", "{version} (CUDA {cuda}), {dir}", "{version}（CUDA {cuda}），{dir}"},
    {"report.torch.cpu", "{version} (without CUDA), {dir}", "{version}（不带 CUDA），{dir}"},
    {"report.python", "{python} {version}: PyTorch {torch}", "{python} {version}：PyTorch {torch}"},
    {"report.vapoursynth.value", "{core} (API {api}), {python}; source filters: {sources}",
     "{core}（API {api}），{python}；读取视频的滤镜：{sources}"},
    {"report.card", "{name}, compute capability {capability}, {memory} MiB{free}: {verdict}",
     "{name}，计算能力 {capability}，{memory} MiB{free}：{verdict}"},
    {"report.card.free", ", {mb} MiB free", "，空闲 {mb} MiB"},
    {"report.will_run", "will run", "可用"},
    {"report.will_not_run", "will not run, {why}", "不可用，{why}"},
    {"report.pcie", "PCIe {generation}.0 x{width}", "PCIe {generation}.0 x{width}"},
    {"report.power", "power limit {limit} W", "功耗上限 {limit} W"},
    {"report.temperature", "{celsius} °C", "{celsius} °C"},
    {"report.trial.copies", "copies {to} GB/s to the card, {from} GB/s back",
     "复制到显卡 {to} GB/s，复制回来 {from} GB/s"},
    {"report.trial.memory", "own memory {gbs} GB/s", "显存 {gbs} GB/s"},
    {"report.trial.matmul", "half precision: matrix product {tflops} TFLOP/s", "半精度矩阵乘 {tflops} TFLOP/s"},
    {"report.trial.convolution", "convolution {tflops} TFLOP/s", "卷积 {tflops} TFLOP/s"},
    {"report.trial", "trial: {figures}", "试运行：{figures}"},
    {"report.no_card", "no CUDA card can be used (see reelgrad doctor); device = \"cpu\" works",
     "没有可用的 CUDA 显卡（见 reelgrad doctor）；device = \"cpu\" 可用"},
    {"report.no_card_no_torch", "no CUDA card can be used (see reelgrad doctor)",
     "没有可用的 CUDA 显卡（见 reelgrad doctor）"},
    {"report.nothing_wrong", "Nothing is wrong.", "一切正常。"},
    {"report.error", "error", "错误"},
    {"report.warning", "warning", "警告"},
    {"report.info", "info", "提示"},
    {"report.found", "found: {evidence}", "依据：{evidence}"},
    {"report.fix", "fix:   {fix}", "办法：{fix}"},
};

std::string_view text_of(const PhraseText& phrase, Language language) {
  return language == Language::chinese ? phrase.chinese : phrase.english;
}

const PhraseText* phrase_of(std::string_view key) {
  const auto* found = std::ranges::find(kPhrases, key, &PhraseText::key);
  return found == std::end(kPhrases) ? nullptr : found;
}

std::string joined(const std::vector<Phrase>& phrases, Language language, std::string_view between) {
  std::string text;
  for (const Phrase& phrase : phrases) {
    if (!text.empty()) text += between;
    text += in_words(phrase, language);
  }
  return text;
}

}  // namespace

Language language_from(std::string_view lang_option, const std::map<std::string, std::string>& environment) {
  const auto language_of = [](std::string_view name) {
    return name.starts_with("zh") ? Language::chinese : Language::english;
  };
  if (!lang_option.empty()) return language_of(lang_option);
  for (const char* variable : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const auto set = environment.find(variable);
    if (set != environment.end() && !set->second.empty()) return language_of(set->second);
  }
  return Language::english;
}

std::span<const PhraseText> all_phrases() {
  return kPhrases;
}

bool has_phrase(std::string_view key) {
  return phrase_of(key) != nullptr;
}

std::string in_words(const Phrase& phrase, Language language) {
  const PhraseText* text = phrase_of(phrase.key);
  if (!text) fail(fmt::format("the doctor has no sentence \"{}\"", phrase.key));
  fmt::dynamic_format_arg_store<fmt::format_context> arguments;
  for (const auto& [name, value] : phrase.values) arguments.push_back(fmt::arg(name.c_str(), std::cref(value)));
  return fmt::vformat(text_of(*text, language), arguments);
}

std::string sentences(const std::vector<Phrase>& phrases, Language language) {
  return joined(phrases, language, language == Language::chinese ? "" : " ");
}

std::string listed(const std::vector<Phrase>& phrases, Language language) {
  return joined(phrases, language, language == Language::chinese ? "；" : "; ");
}

}  // namespace reelgrad
