// The networks of features that losses look through: which files hold them, and what their layers are called.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace reelgrad {

// A file of torchvision's, which puts the first eight digits of its SHA-256 into its name.
struct PublishedFile {
  std::string_view name, sha256_start;
};

inline constexpr PublishedFile kVgg19File{"vgg19-dcbb9e9d.pth", "dcbb9e9d"};
inline constexpr PublishedFile kVgg16File{"vgg16-397923af.pth", "397923af"};
inline constexpr PublishedFile kAlexnetFile{"alexnet-owt-7be5be79.pth", "7be5be79"};

// For a file that is missing: what it is and who publishes it.
inline constexpr std::string_view kNoVgg19 =
    "torchvision's VGG19: vgg19-dcbb9e9d.pth, published at https://download.pytorch.org/models/vgg19-dcbb9e9d.pth (its "
    "SHA-256 begins with dcbb9e9d); reelgrad downloads nothing";
inline constexpr std::string_view kNoVgg16 =
    "torchvision's VGG16: vgg16-397923af.pth, published at https://download.pytorch.org/models/vgg16-397923af.pth (its "
    "SHA-256 begins with 397923af); reelgrad downloads nothing";
inline constexpr std::string_view kNoLpipsBackbone =
    "for net = \"vgg\" torchvision's vgg16-397923af.pth, for net = \"alex\" its alexnet-owt-7be5be79.pth, published "
    "under "
    "https://download.pytorch.org/models/ (the digits begin their SHA-256); reelgrad downloads nothing";
inline constexpr std::string_view kNoLpips =
    "weights/v0.1/vgg.pth (SHA-256 a78928a0…) or alex.pth (df73285e…) of the Python package lpips, published at "
    "https://github.com/richzhang/PerceptualSimilarity (pip install --no-deps lpips puts them where they are found); "
    "reelgrad downloads nothing";
inline constexpr std::string_view kNoDists =
    "weights.pt (SHA-256 f5e65c96…) of the Python package DISTS-pytorch, published at "
    "https://github.com/dingkeyan93/DISTS (pip install --no-deps DISTS-pytorch puts it where it is found); reelgrad "
    "downloads nothing";

// The number of a layer in torchvision's VGG19 ("features.N"): convB_N before the activation, reluB_N after it, poolB;
// B from 1 to 5, N up to 2 or, from block 3 on, 4. nullopt: there is none of that name.
std::optional<int> vgg19_layer(std::string_view name);

}  // namespace reelgrad
